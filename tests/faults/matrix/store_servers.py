"""Stores with a server of their own, which can be killed, stopped, cut off and started again."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import redis

from tests.faults.matrix.crowd import children_of, state_of, wait_until
from tests.patience import PATIENCE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.system.mariadb.server import MariaDBServer


def send(pid: int, number: signal.Signals) -> None:
    """The process hears the signal, unless it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class SqlitePlace:
    """A file. It has no server: whoever uses it is the store."""

    name = "sqlite"
    server = False

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def fresh(self) -> str:
        """The URL of a store without records."""
        self._count += 1
        return f"sqlite:///{self._folder}/records{self._count}.db"

    def close(self) -> None:
        """The folder goes with the run."""


class RedisPlace:
    """A redis-server with an append-only file.

    With `always` it loses nothing of what it has answered. With `everysec` it answers also while a
    sync of its file is under way, and writes later: whoever kills it then, and be it alone, takes
    that away.
    """

    name = "redis"
    server = True

    def __init__(self, folder: Path, fsync: str, **options: str) -> None:
        self.folder = folder / f"redis-{fsync}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.redis = RedisServer(
            self.folder, appendonly="yes", appendfsync=fsync, **options
        ).start()
        self.port = self.redis.port

    def fresh(self) -> str:
        with self.redis.client() as client:
            client.flushall()
        return self.redis.url

    def kill(self) -> None:
        """It is gone, without a word to anybody."""
        self.redis.kill()
        code = self.redis.process.returncode
        if code != -signal.SIGKILL:
            raise AssertionError(f"redis-server ended with {code} before it was killed")

    def start(self) -> None:
        """It answers, with everything that it had written."""
        self.redis.start()

        def loaded() -> bool:
            try:
                with self.redis.client() as client:
                    return not client.info("persistence")["loading"]
            except redis.ConnectionError:
                return False

        wait_until(loaded, "redis-server loads its file")

    def send(self, number: signal.Signals) -> None:
        self.redis.process.send_signal(number)

    @property
    def file(self) -> Path:
        """The file that it appends to."""
        one = self.folder / "appendonly.aof"
        if one.exists():
            return one
        return max(self.folder.glob("appendonlydir/*.incr.aof"))

    def close(self) -> None:
        self.redis.stop()


class KillablePostgres(PostgresServer):
    """A server that may be killed with everything that it has started."""

    def kill(self) -> None:
        """It is gone, as when its machine lost its power; the files are as they are."""
        process = self._process
        assert process is not None
        family = children_of(process.pid)
        process.kill()
        code = process.wait(PATIENCE)
        if code != -signal.SIGKILL:
            raise AssertionError(f"postgres ended with {code} before it was killed")
        self._process = None
        for one in family:
            send(one, signal.SIGKILL)
        wait_until(
            lambda: all(state_of(one) in ("", "Z") for one in family), "backends of postgres end"
        )

    @property
    def process(self) -> Any:
        return self._process


class PostgresPlace:
    """A PostgreSQL as it comes: what it has confirmed is on the disk."""

    name = "postgres"
    server = True

    def __init__(self, **settings: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="oncekey-postgres-"))
        try:
            self.postgres = KillablePostgres(self._folder, durable=True)
            # Which way it brings its files to the disk before a recovery says nothing about us.
            quick = {"recovery_init_sync_method": "syncfs"}
            self.postgres._settings = {**self.postgres._settings, **quick, **settings}
            self.postgres.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        self.port = self.postgres.port

    def fresh(self) -> str:
        return self.postgres.new_database()

    def kill(self) -> None:
        self.postgres.kill()

    def start(self) -> None:
        self.postgres.start()

    def send(self, number: signal.Signals) -> None:
        """To the server and to all that it has started."""
        process = self.postgres.process
        for one in (*children_of(process.pid), process.pid):
            send(one, number)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.postgres.url("postgres"), autocommit=True)

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def close(self) -> None:
        try:
            self.postgres.stop(signal.SIGQUIT)
        finally:
            shutil.rmtree(self._folder)


class MariaDBPlace:
    """A MariaDB of the Debian package: what it has confirmed is on the disk."""

    name = "mariadb"
    server = True

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="oncekey-mariadb-"))
        try:
            self.mariadb = MariaDBServer(self._folder, "--innodb-flush-log-at-trx-commit=1")
            self.mariadb.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        self.port = self.mariadb.port
        self.database = ""
        """The one that was made last."""

    def fresh(self) -> str:
        self.database = self.mariadb.new_database()
        return self.mariadb.url(self.database)

    def kill(self) -> None:
        process = self.mariadb.process
        self.mariadb.stop(signal.SIGKILL)
        if process.returncode != -signal.SIGKILL:
            raise AssertionError(f"mariadbd ended with {process.returncode} before it was killed")

    def start(self) -> None:
        self.mariadb.start()

    def send(self, number: signal.Signals) -> None:
        self.mariadb.process.send_signal(number)

    def close(self) -> None:
        try:
            self.mariadb.stop(signal.SIGKILL)
        finally:
            shutil.rmtree(self._folder)


Place = SqlitePlace | RedisPlace | PostgresPlace | MariaDBPlace


class Places:
    """The stores of one run of the matrix, each opened when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, Place] = {}
        self._makers: dict[str, Callable[[], Place]] = {
            "sqlite": lambda: SqlitePlace(folder),
            "redis": lambda: RedisPlace(folder, "always"),
            "postgres": PostgresPlace,
            "mariadb": MariaDBPlace,
        }

    def get(self, name: str) -> Any:
        """The store of this name; one that will not start fails whoever asks for it."""
        if name not in self._open:
            self._open[name] = self._makers[name]()
        return self._open[name]

    @contextmanager
    def alone(self, maker: Callable[..., Any], *args: Any, **options: str) -> Iterator[Any]:
        """A server for one cell, which ends with it."""
        place = maker(*args, **options)
        try:
            yield place
        finally:
            place.close()

    def another(self, name: str) -> AbstractContextManager[Any]:
        """A server of this kind for one cell."""
        return self.alone(self._makers[name])

    def close(self) -> None:
        with ExitStack() as stack:
            for place in self._open.values():
                stack.callback(place.close)
