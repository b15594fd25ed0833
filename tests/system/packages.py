"""Install what the tests of this folder need: `python -m tests.system.packages`.

With names of packages, only these are installed: `python -m tests.system.packages pgbouncer`.

These programs are in no wheel. Root installs the Debian packages that are missing; anybody else is
told which ones to install.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the wrapper on the PATH, which becomes another user."""


def find_chromium() -> str | None:
    """Return the path of a Chromium that starts: on some systems the package is only a promise."""
    found = (path for name in CHROMIUM if (path := shutil.which(name)) is not None)
    return next((path for path in found if _ends_well([path, "--version"])), None)


def find_rabbitmq() -> str | None:
    """Return the path of RabbitMQ's own start script."""
    return str(RABBITMQ) if RABBITMQ.exists() else None


def find_pgbouncer() -> str | None:
    """Return the path of PgBouncer, which Debian puts where only root's PATH looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def find_mariadb() -> str | None:
    """Return the path of the server, which Debian puts where only root's PATH looks."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def find_nginx() -> str | None:
    """Return the path of nginx, which Debian puts where only root's PATH looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def find_caddy() -> str | None:
    """Return the path of Caddy."""
    return shutil.which("caddy")


def find_prometheus() -> str | None:
    """Return the path of Prometheus."""
    return shutil.which("prometheus")


FINDERS: Mapping[str, Callable[[], str | None]] = {
    "caddy": find_caddy,
    "chromium": find_chromium,
    "mariadb-server": find_mariadb,
    "nginx-light": find_nginx,
    "npm": lambda: shutil.which("npm"),
    "pgbouncer": find_pgbouncer,
    "prometheus": find_prometheus,
    "rabbitmq-server": find_rabbitmq,
}
"""The Debian packages, and how the program of each is found."""


def main(packages: Sequence[str]) -> int:
    """Return 0 when the programs of the packages are there, and 1 after saying what to install."""
    missing = _missing(packages)
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        _install(missing)
        missing = _missing(packages)
    if missing:
        sys.stderr.write(
            f"this needs programs that are not installed. As root, run\n"
            f"    apt-get install --no-install-recommends {' '.join(missing)}\n"
        )
        return 1
    return 0


def _missing(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if FINDERS[name]() is None]


def _install(packages: Sequence[str]) -> None:
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    # The package lists may be missing or old, as in a fresh container.
    if not _ends_well(install, say_why=False):
        _ends_well(["apt-get", "update"])
        _ends_well(install)


def _ends_well(command: Sequence[str], *, say_why: bool = True) -> bool:
    """Run a command quietly. Return whether its exit code is 0, and else show what it said."""
    # With this RUNLEVEL the packages do not start services of the system.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **quiet},
        check=False,
    )
    if done.returncode != 0 and say_why:
        sys.stderr.write(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-1000:]}\n")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(FINDERS)))
