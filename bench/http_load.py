"""Load on a server from another process: by wrk where it is installed, else from here."""

from __future__ import annotations

import json
import re
import secrets
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, repeat
from pathlib import Path
from typing import Final, Literal, NamedTuple

from bench.http_server import BODY

CONNECTIONS: Final = 64
Kind = Literal["none", "new", "duplicate"]
_SCRIPT: Final = Path(__file__).with_name("http_wrk.lua")
_PATIENCE: Final = 60.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


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
            timeout=_PATIENCE,
            check=True,
        )
        facts = json.loads(done.stdout.splitlines()[-1])
        refused = facts["refused"]
        return Sent(facts["requests"] - refused, refused, facts["seconds"])

    return by_wrk, f"wrk makes the requests over {CONNECTIONS} connections"


def by_hand(port: int, kind: Kind, seconds: float) -> Sent:
    """The same without wrk."""
    end = time.perf_counter() + seconds
    return _exchanged(port, kind, _name(port, kind), lambda _: time.perf_counter() < end)


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
    waiting = select.poll()
    connections: dict[int, socket.socket] = {}
    sent = answered = refused = 0
    with ExitStack() as opened:
        start = time.perf_counter()
        while len(connections) < CONNECTIONS and more(sent):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", port), _PATIENCE))
            connections[one.fileno()] = one
            waiting.register(one, select.POLLIN)
            one.sendall(next(texts))
            sent += 1
        held = dict.fromkeys(connections, b"")
        while answered < sent:
            ready = waiting.poll(_PATIENCE * 1000)
            if not ready:
                raise LoadError("the server does not answer any more")
            for number, _ in ready:
                chunk = connections[number].recv(65536)
                if not chunk:
                    raise LoadError("the server has hung up")
                held[number] += chunk
                if not _whole(held[number]):
                    continue
                refused += not held[number].startswith(b"HTTP/1.1 2")
                held[number] = b""
                answered += 1
                if more(sent):
                    connections[number].sendall(next(texts))
                    sent += 1
        return Sent(answered - refused, refused, time.perf_counter() - start)


def _whole(response: bytes) -> bool:
    """Whether all of it is here."""
    head, empty, body = response.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(empty) and length is not None and len(body) >= int(length[1])


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
