"""Servers for the time of a run, each a process of its own, and what the system knows of them."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.http import import_path
from tests.patience import PATIENCE

_ROOT: Final = Path(__file__).parents[2]
BODY: Final = b'{"order": "order-1", "amount": 40}'


class Answering(NamedTuple):
    """A server that answers."""

    port: int
    pid: int

    def cpu(self) -> float | None:
        """Seconds of processor that it has used so far, with all its threads."""
        told = _told(self.pid, "stat")
        if told is None:
            return None
        used = told.rpartition(")")[2].split()[11:13]  # the name before may hold anything
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float | None:
        """MiB of memory that it holds."""
        told = _told(self.pid, "statm")
        return None if told is None else int(told.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _told(pid: int, what: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/{what}").read_text("utf-8")
    except OSError:
        return None


class NotServingError(Exception):
    """A server ended before it answered."""


@contextmanager
def serving(sides: Mapping[str, str]) -> Iterator[dict[str, Answering]]:
    """A server for each side, on the store that is named for it; afterwards they are gone."""
    with ExitStack() as opened:
        started = {side: opened.enter_context(_process(side, sides[side])) for side in sides}
        yield {side: _when_ready(side, *process) for side, process in started.items()}


@contextmanager
def _process(side: str, store: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        port: int = listening.getsockname()[1]
        number = listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.cases.http_app", side, store, str(number)],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": import_path(side)},
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # peers tell there of every client that leaves
        )
    try:
        yield process, port
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _when_ready(side: str, process: subprocess.Popen[bytes], port: int) -> Answering:
    """It listens from the start, so that the first answer comes when it is ready."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            post(port)
        except OSError as error:
            if process.poll() is not None or time.monotonic() > give_up:
                msg = f"the server {side} did not answer: {error}"
                raise NotServingError(msg) from None
            time.sleep(0.02)
        else:
            return Answering(port, process.pid)


def post(port: int, key: str | None = None) -> dict[str, int]:
    """The answer to one charge."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["idempotency-key"] = key
    try:
        connection.request("POST", "/charge", BODY, headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 201, (response.status, content)
        answer: dict[str, int] = json.loads(content)
    finally:
        connection.close()
    return answer
