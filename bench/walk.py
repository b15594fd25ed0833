"""How far a reader walks through the files of the package with one call: `make walk`.

Six calls are traced, each with a new key after a first one has warmed everything up. For each the
table has the functions of the package that were called, the files in which they are, and how often
the walk came back to a file that it had left. `--files` names the files in the order of the walk.

How many bytecode steps they take: `python -m bench.where --servers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import psycopg
from celery import Celery  # type: ignore[import-untyped]  # celery has no types

import oncekey
from bench.architecture import PICTURES, YOURS, Step, draw_layers, draw_walk, path_of
from oncekey import Once
from oncekey.events import AsyncBus, Gateway, Stages
from oncekey.http import IETF
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.jobs.celery import once_task
from oncekey.messages import Inbox, Message
from tests.servers.postgres import serving
from tests.servers.redis import RedisServer

_SOURCE: Final = str(Path(oncekey.__file__).parent)
_PROTECTED: Final = ("charge", "app")
_INNER: Final = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
Call = Callable[[], object]
_keys = count(1)


class Walk(NamedTuple):
    """What one call went through: functions of the package, and the code that it protects."""

    steps: list[Step]

    @property
    def calls(self) -> int:
        """How many functions of the package were called."""
        return len(self._files())

    @property
    def files(self) -> list[str]:
        """The files in which they are, in the order of the walk."""
        return list(dict.fromkeys(self._files()))

    @property
    def returns(self) -> int:
        """How often the walk came back to a file that it had left."""
        changes = [name for before, name in pairwise(["", *self._files()]) if before != name]
        return len(changes) - len(set(changes))

    def _files(self) -> list[str]:
        return [step.file for step in self.steps if step.file != YOURS and not step.asks]


def walk(call: Call) -> Walk:
    """Trace one call, on this thread and on those that it starts."""
    steps: list[Step] = []
    seen: list[FrameType] = []  # a coroutine that goes on is no new call
    known: set[int] = set()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call" and _asks_store(argument):
            while not (file := _file_of(frame)) and frame.f_back is not None:
                frame = frame.f_back  # a library, such as asyncio
            if file:
                steps.append(Step(file, frame.f_code.co_qualname, asks=True))
        elif event == "call" and id(frame) not in known and (file := _file_of(frame)):
            known.add(id(frame))
            seen.append(frame)
            steps.append(Step(file, frame.f_code.co_qualname))

    threading.setprofile(trace)  # for threads that the call starts
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Walk(steps)


def _file_of(frame: FrameType) -> str:
    """Return the file of the package that it is in, `YOURS`, or nothing."""
    code = frame.f_code
    if code.co_filename.startswith(_SOURCE) and code.co_name not in _INNER:
        return code.co_filename.removeprefix(f"{_SOURCE}/")
    return YOURS if code.co_filename == __file__ and code.co_name in _PROTECTED else ""


def _asks_store(function: object) -> bool:
    """Tell whether a function in C sends something to a file of SQLite, or to a server."""
    match getattr(function, "__self__", None):
        case sqlite3.Connection():
            return getattr(function, "__name__", "") == "execute"
        case socket.socket():
            return getattr(function, "__name__", "") == "send"
        case _:
            return False


@contextmanager
def calls() -> Iterator[dict[str, Call]]:
    """Make the six calls ready, on servers that end with the block."""
    with ExitStack() as stack, asyncio.Runner() as runner:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = RedisServer(folder).start()
        stack.callback(server.stop)
        url = stack.enter_context(serving()).new_database()
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        sqlite = Once(f"sqlite:///{folder / 'walk.db'}", observers=())
        redis = Once(server.url, observers=())
        yield {
            "sync function, SQLite": _function(sqlite),
            "async function, Redis": _coroutine(redis, runner),
            "ASGI request, Redis": _request(redis, runner),
            "Celery delivery, Redis": _delivery(redis),
            "inbox.atomic, psycopg": _message(Inbox(url, consumer="walk"), connection),
            "publish to SSE frame, Redis": _event(server.url, runner),
        }
        runner.run(redis.aclose())
        sqlite.close()


def _function(once: Once) -> Call:
    @once("walk:{order}")
    def charge(order: str) -> str:
        return order

    return lambda: charge(f"o-{next(_keys)}")


def _coroutine(once: Once, runner: asyncio.Runner) -> Call:
    @once("walk-async:{order}")
    async def charge(order: str) -> str:
        return order

    return lambda: runner.run(charge(f"o-{next(_keys)}"))


def _request(once: Once, runner: asyncio.Runner) -> Call:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    guarded = IdempotencyMiddleware(app, once, profile=IETF, scope=lambda _request: "walk")

    async def ask() -> None:
        headers = [(b"idempotency-key", f'"k-{next(_keys)}"'.encode())]
        scope = {
            "type": "http", "method": "POST", "path": "/orders", "query_string": b"",
            "headers": headers, "http_version": "1.1", "root_path": "", "scheme": "http",
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_message: Any) -> None:
            return

        await guarded(scope, receive, send)

    return lambda: runner.run(ask())


def _delivery(once: Once) -> Call:
    app = Celery("walk", broker="memory://", set_as_current=False)

    def charge(order: str) -> str:
        return order

    task = app.task(once_task(once)(charge), name="charge", shared=False)
    return lambda: task.apply((f"o-{next(_keys)}",)).get()


def _message(inbox: Inbox, connection: psycopg.Connection[Any]) -> Call:
    def receive() -> None:
        number = f"m-{next(_keys)}"
        message = Message(id=number, type="order.placed", body={"order": number})
        with connection.transaction(), inbox.atomic(connection, message):
            connection.execute("SELECT 1")

    return receive


def _event(url: str, runner: asyncio.Runner) -> Call:
    # With one shard every walk is the same: a shard is looked at once a minute, whether it is read.
    bus = AsyncBus(url, domain="walk", stages=Stages({"work": (0, 10**9)}), shards=1)
    gateway = Gateway(bus, allow=None)

    async def watch() -> None:
        job, number = f"j-{next(_keys)}", 1
        await bus.publish(job, "work", {"done": 1}, seq=number)
        arrived = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await arrived.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if b"data:" in message.get("body", b""):
                arrived.set()

        scope = {
            "type": "http", "method": "GET", "path": f"/{job}", "query_string": b"",
            "headers": [], "root_path": "",
        }  # fmt: skip
        await gateway(scope, receive, send)

    return lambda: runner.run(watch())


def write(found: Mapping[str, Walk]) -> None:
    """Draw the pictures of docs/architecture.md."""
    path_of("layers").write_text(draw_layers(), "utf-8")
    for name, picture in PICTURES.items():
        path_of(picture.name).write_text(draw_walk(picture, found[name].steps), "utf-8")


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.walk", description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files of each walk")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", action="store_true", help="draw docs/images/architecture-*.svg")
    asked = parser.parse_args()
    found: dict[str, Walk] = {}
    with calls() as ready:
        for name, call in ready.items():
            for _ in range(3):
                call()
            found[name] = walk(call)
    if asked.write:
        write(found)
    if asked.json:
        print(json.dumps({name: _figures(one) for name, one in found.items()}))
        return
    print(f"{'call':30} {'functions':>9} {'files':>6} {'returns':>8}")
    for name, one in found.items():
        print(f"{name:30} {one.calls:9} {len(one.files):6} {one.returns:8}")
        if asked.files:
            print("".join(f"    {file}\n" for file in one.files))


def _figures(one: Walk) -> dict[str, int | list[str]]:
    return {"calls": one.calls, "files": one.files, "returns": one.returns}


if __name__ == "__main__":
    main()
