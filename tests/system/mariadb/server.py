"""A real MariaDB: the Debian package, on a port of the loopback, with data that is gone afterwards.

It runs as `nobody` for root, which it refuses.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql

from tests.patience import PATIENCE
from tests.servers.ports import free_port
from tests.system.packages import find_mariadb

TRIES = 5
HASTY = (
    "--innodb-flush-log-at-trx-commit=2",  # a kill loses nothing; a power cut is not tried here
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=16M",
    "--skip-name-resolve",
)


class MariaDBServer:
    """One server process, which can be stopped, killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Make the data in `folder`, without starting the server. `options` are of the server."""
        program = find_mariadb()
        assert program is not None, "no MariaDB: run make test-servers, which installs it"
        self._program, self._folder, self.options = program, folder, options
        self.port = free_port()
        self.process: Any = None
        self._tries, self._databases = TRIES, 0
        # It may not write into a folder that belongs to who runs the tests.
        self._who: dict[str, Any] = {"env": {**os.environ, "TMPDIR": str(folder)}}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._who |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        done = subprocess.run(
            [
                "/usr/bin/mariadb-install-db", "--no-defaults", f"--datadir={folder / 'data'}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
            ],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, **self._who,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start the process and return when it answers, on another port if this one was taken."""
        while not self._answers():
            self._tries -= 1
            assert self._tries > 0, (self._folder / "log").read_text(errors="replace")[-2000:]
            self.port = free_port()
        self._tries = 1

    def _answers(self) -> bool:
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self._program, "--no-defaults", f"--datadir={self._folder / 'data'}",
                    f"--port={self.port}", "--bind-address=127.0.0.1",
                    f"--socket={self._folder / 'socket'}", *HASTY, *self.options,
                ],
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._who,
            )  # fmt: skip
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            try:
                self.connected().close()
            except pymysql.OperationalError:
                assert time.monotonic() < give_up, "MariaDB does not answer"
                time.sleep(0.02)
            else:
                return True
        return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server: SIGTERM asks it to, SIGKILL is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.process = None

    def connected(self, database: str | None = None) -> Any:
        """Return a connection as a user with every right."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )

    def say(self, *statements: str, database: str | None = None) -> Any:
        """Run the statements. Return the rows of the last one."""
        with self.connected(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def url(self, database: str, user: str = "root") -> str:
        """Return the URL of the database."""
        return f"mysql://{user}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make a database and return its name."""
        self._databases += 1
        name = f"once_{self._databases}"
        self.say(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name


@contextmanager
def serving(*options: str, beside: Path | None = None) -> Iterator[MariaDBServer]:
    """Run a server inside the block and leave nothing behind.

    Its data is in the folder `beside`, which every user must be able to read.
    """
    folder = Path(tempfile.mkdtemp(prefix="oncekey-mariadb-", dir=beside))
    try:
        server = MariaDBServer(folder, *options)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGKILL)
    finally:
        shutil.rmtree(folder)
