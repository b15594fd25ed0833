"""Load on a server from another process: by wrk where it is installed, else from here."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count, repeat
from pathlib import Path
from selectors import EVENT_READ, PollSelector
from typing import Final, Literal, NamedTuple

from bench.cases.http_server import BODY
from tests.patience import PATIENCE

CONNECTIONS: Final = 64
Kind = Literal["none", "new", "duplicate"]
_SCRIPT: Final = Path(__file__).with_name("http_wrk.lua")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: chunked", re.IGNORECASE)


class Sent(NamedTuple):
    """How many requests were answered with a success, how many were not, and in which time."""

    requests: int
    refused: int
    seconds: float


class LoadError(Exception):
    """The server has stopped to answer."""


Load = Callable[[int, Kind, float], Sent]
"""Charges on a port, for so many seconds; what is sent as a duplicate has an answer already."""


def load(*, whole_seconds: bool) -> tuple[Load, str]:
    """What makes the load, and a sentence about it. wrk counts in whole seconds."""
    program = shutil.which("wrk")
    if program is None:
        return by_hand, (
            "wrk is not installed: a loop in Python makes the requests, which may be slower than "
            "the bare application and then flatters every ratio"
        )
    if not whole_seconds:
        return by_hand, "a loop in Python makes the requests: wrk needs a second at least"

    def by_wrk(port: int, kind: Kind, seconds: float) -> Sent:
        words = [program, "-t1", f"-c{CONNECTIONS}", f"-d{round(seconds)}s", "-s", str(_SCRIPT)]
        told = [kind, _name(port, kind), BODY.decode()]
        done = subprocess.run(
            [*words, f"http://127.0.0.1:{port}/charge", "--", *told],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        facts = json.loads(done.stdout.splitlines()[-1])
        refused = facts["refused"]
        return Sent(facts["requests"] - refused, refused, facts["seconds"])

    return by_wrk, f"wrk makes the requests over {CONNECTIONS} connections"


def by_hand(port: int, kind: Kind, seconds: float) -> Sent:
    """The same without wrk."""
    name = _name(port, kind)
    end = time.perf_counter() + seconds
    return _exchanged(port, kind, name, lambda _: time.perf_counter() < end)


def requests_by_hand(port: int, requests: int) -> Sent:
    """So many charges with a new key each."""
    return _exchanged(port, "new", _name(port, "new"), lambda sent: sent < requests)


def _name(port: int, kind: Kind) -> str:
    """The key of all duplicates, or the start of every new one."""
    name = secrets.token_hex(12)
    if kind == "duplicate":
        _exchanged(port, kind, name, lambda sent: sent < 1)
    return name


def _exchanged(port: int, kind: Kind, name: str, more: Callable[[int], bool]) -> Sent:
    """Every connection sends its next request when the last is answered, while there are more."""
    texts = _texts(port, kind, name)
    sent = answered = refused = 0
    with PollSelector() as waiting, ExitStack() as opened:
        start = time.perf_counter()
        while sent < CONNECTIONS and more(sent):
            opened.enter_context(closing(_Connection(port, waiting))).send(next(texts))
            sent += 1
        while answered < sent:
            ready = waiting.select(PATIENCE)
            if not ready:
                raise LoadError("the server does not answer any more")
            for key, _ in ready:
                connection: _Connection = key.data
                answer = connection.receive()
                if answer is None:
                    continue
                refused += not answer.startswith(b"HTTP/1.1 2")
                answered += 1
                if more(sent):
                    connection.send(next(texts))
                    sent += 1
        return Sent(answered - refused, refused, time.perf_counter() - start)


class _Connection:
    """A connection that is opened again when the server closes it between two requests."""

    def __init__(self, port: int, waiting: PollSelector) -> None:
        self._port = port
        self._waiting = waiting
        self._request = self._held = b""
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
        self._waiting.register(self._socket, EVENT_READ, self)
        self._is_new = True

    def close(self) -> None:
        """Close it. To send something opens it again."""
        self._socket.close()

    def send(self, request: bytes) -> None:
        """Send the next request. Whether the server has closed the connection is seen later."""
        if self._socket.fileno() < 0:
            self._open()
        self._request = request
        with suppress(ConnectionError):
            self._socket.sendall(request)

    def receive(self) -> bytes | None:
        """Read what is there. Return the answer, or None while some of it is missing."""
        try:
            chunk = self._socket.recv(65536)
        except ConnectionError:
            chunk = b""
        if not chunk:
            self._hung_up()
            return None
        self._held += chunk
        if not _whole(self._held):
            return None
        answer, self._request, self._held, self._is_new = self._held, b"", b"", False
        return answer

    def _hung_up(self) -> None:
        """Send the request again if the server closed the connection before it came."""
        if self._held or self._is_new:
            raise LoadError("the server has hung up instead of answering")
        self._waiting.unregister(self._socket)
        self.close()
        if self._request:
            self.send(self._request)


def _whole(response: bytes) -> bool:
    """Return whether all of it is here."""
    head, end, body = response.partition(b"\r\n\r\n")
    if not end:
        return False
    length = _LENGTH.search(head)
    if length is not None:
        return len(body) >= int(length[1])
    if _CHUNKED.search(head) is None:
        raise LoadError("the server does not tell how long its answer is")
    while body:
        size, _, body = body.partition(b"\r\n")
        if size == b"0":
            return body == b"\r\n"
        body = body[int(size, 16) + 2 :]
    return False


def _texts(port: int, kind: Kind, name: str) -> Iterator[bytes]:
    """The same bytes as wrk sends."""
    head = (
        b"POST /charge HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n" % (port, len(BODY))
    )
    if kind == "none":
        return repeat(head + b"\r\n" + BODY)
    key = b"Idempotency-Key: " + name.encode()
    if kind == "duplicate":
        return repeat(head + key + b"\r\n\r\n" + BODY)
    return (head + key + b"-%d\r\n\r\n" % number + BODY for number in count())
