"""Where the work of a call is: counted, not timed, so that a busy machine gives the same figures.

`make bench-where` counts the bytecode steps of a request over ASGI and of protected functions, by
package and by function. Where valgrind is installed it also counts the instructions of the
processor, those of the interpreter and of every library included. Beside each figure stands that
of `bench/where.json`, or of the file that `--against` names, so that a change shows what it costs;
`--write` keeps the new ones there. With PYTHONPATH set to the `src` of another tree it counts those
of that tree.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any, Final

import msgspec

import oncekey
from oncekey import Once
from oncekey.http.asgi import IdempotencyMiddleware

KEPT: Final = Path(__file__).with_suffix(".json")
_SOURCE: Final = f"{Path(oncekey.__file__).parent}/"
_MARK: Final = "Py_SetRecursionLimit"
"""A function in C that nothing else calls meanwhile: callgrind begins to count anew there."""
_SUMMARY: Final = re.compile(r"^summary: (\d+)", re.MULTILINE)
_WARM: Final = 30
_FEW: Final = 3
_MANY: Final = 15
_BATCHES: Final = 5
_BATCH: Final = 40

Call = Callable[[], Awaitable[None] | object]
_keys = count(1)


class Found(msgspec.Struct):
    """What one call takes: bytecode steps by function of the package, and instructions."""

    steps: dict[str, int]
    """By file and function, the most first. What is counted under "" is outside of the package."""
    instructions: int | None = None

    @property
    def ours(self) -> int:
        """All steps in the package."""
        return sum(number for name, number in self.steps.items() if name)

    def layers(self) -> Counter[str]:
        """Return the steps by package, or by module where it is in none."""
        layers: Counter[str] = Counter()
        for name, number in self.steps.items():
            if name:
                layers[re.split(r"\.py|/", name)[0]] += number
        return layers


class Table(msgspec.Struct):
    """What all calls take, and on which Python."""

    python: str
    calls: dict[str, Found]


# The calls


@contextmanager
def calls() -> Iterator[dict[str, Call]]:
    """Make the calls ready. None asks a server."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        memory, remote = _once("memory://"), _once("memory://", cache=True)
        file = _once(f"sqlite:///{folder}/where.db")
        stack.callback(file.close)
        yield {
            "ASGI request, no key": _request(memory, _no_key),
            "ASGI request, new key": _request(remote, _new_key),
            "ASGI request, duplicate": _request(remote, _same_key),
            "ASGI request, duplicate, cache off": _request(memory, _same_key),
            "async function, new key": _coroutine(memory, _new_key),
            "async function, duplicate": _coroutine(memory, _same_key),
            "function in memory, new key": _function(memory, _new_key),
            "function in memory, duplicate": _function(memory, _same_key),
            "function on SQLite, new key": _function(file, _new_key),
            "function on SQLite, duplicate": _function(file, _same_key),
        }


def _once(url: str, **settings: Any) -> Once:
    return Once(url, observers=(), **settings)


def _new_key() -> str:
    return f"order-{next(_keys):08}"


def _same_key() -> str:
    return "order-same"


def _no_key() -> str:
    return ""


def _request(once: Once, key: Callable[[], str]) -> Call:
    """Return a request as a server such as uvicorn brings it, to an application that echoes."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    guarded = IdempotencyMiddleware(app, once, scope=None)
    body = b'{"amount": 40, "currency": "EUR"}'

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(_message: Any) -> None:
        return

    async def ask() -> None:
        headers = [
            (b"host", b"127.0.0.1:8000"),
            (b"accept", b"*/*"),
            (b"user-agent", b"client/1.0"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        sent = key()
        if sent:
            headers.append((b"idempotency-key", sent.encode()))
        scope = {
            "type": "http", "method": "POST", "path": "/orders", "raw_path": b"/orders",
            "query_string": b"", "headers": headers, "http_version": "1.1", "root_path": "",
            "scheme": "http",
        }  # fmt: skip
        await guarded(scope, receive, send)

    return ask


def _coroutine(once: Once, key: Callable[[], str]) -> Call:
    @once("where-async:{order}")
    async def charge(order: str) -> str:
        return order

    return lambda: charge(key())


def _function(once: Once, key: Callable[[], str]) -> Call:
    @once("where:{order}")
    def charge(order: str) -> str:
        return order

    return lambda: charge(key())


# Bytecode steps


def steps(call: Callable[[], object]) -> Counter[str]:
    """Count the bytecode steps of one call on this thread and on those that it starts."""
    seen: Counter[str] = Counter()
    names: dict[Any, str] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            seen[names[frame.f_code]] += 1
        elif event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            names.setdefault(frame.f_code, _name(frame))
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return seen


def _name(frame: FrameType) -> str:
    code = frame.f_code
    if not code.co_filename.startswith(_SOURCE):
        return ""
    return f"{code.co_filename.removeprefix(_SOURCE)} {code.co_qualname}"


def _steps_of(call: Call, runner: asyncio.Runner, times: int) -> dict[str, int]:
    """Count several calls, and take the median: a timer may be due in one of them."""
    for _ in range(_WARM):
        _made(call, runner, 1)
    counted = [steps(lambda: _made(call, runner, 1)) for _ in range(times)]
    names = set().union(*counted)
    found = {name: median_low(one[name] for one in counted) for name in names}
    ordered = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return {name: number for name, number in ordered if number}


def _made(call: Call, runner: asyncio.Runner, times: int) -> None:
    made = call()
    if inspect.isawaitable(made):
        runner.run(_made_in_turn(made, call, times - 1))
        return
    for _ in range(times - 1):
        call()


async def _made_in_turn(first: Awaitable[None], call: Call, more: int) -> None:
    await first
    for _ in range(more):
        made: Any = call()
        await made


# Instructions


def _instructions() -> list[int]:
    """Count the instructions of each call, in the order of `calls`, in a process under valgrind."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = [f"--callgrind-out-file={out}", f"--dump-before={_MARK}"]
        made = [sys.executable, "-m", "bench.where", "--make-calls"]
        subprocess.run(
            [shutil.which("valgrind") or "valgrind", "--tool=callgrind", *words, *made],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        dumps = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        counted = [int(match[1]) for path in dumps for match in _SUMMARY.finditer(path.read_text())]
    of_each = 1 + _BATCHES  # the first is what came before the batches
    assert len(counted) > 1, f"callgrind saw no {_MARK}"
    batches = (counted[at + 1 : at + of_each] for at in range(0, len(counted), of_each))
    return [median_low(batch) // _BATCH for batch in batches]


def _make_calls() -> None:
    """Make batches of each call, with a mark before each of them and after the last."""
    with calls() as ready, asyncio.Runner() as runner:
        for call in ready.values():
            _made(call, runner, _WARM)
            gc.collect()
            gc.disable()
            for _ in range(_BATCHES):
                sys.setrecursionlimit(sys.getrecursionlimit())
                _made(call, runner, _BATCH)
            sys.setrecursionlimit(sys.getrecursionlimit())
            gc.enable()


# The table


def _table(times: int, *, servers: bool, instructions: bool) -> Table:
    with calls() as ready, asyncio.Runner() as runner:
        found = {name: Found(_steps_of(call, runner, times)) for name, call in ready.items()}
        if instructions:
            for one, number in zip(found.values(), _instructions(), strict=True):
                one.instructions = number
        if servers:
            with import_module("bench.walk").calls() as more:  # which imports much
                for name, call in more.items():
                    found[name] = Found(_steps_of(call, runner, times))
    return Table(platform.python_version(), found)


def _show(table: Table, before: Table, least: int) -> None:
    """Print every call by package, then every function with at least so many steps."""
    if table.python != before.python:
        print(f"The earlier figures are those of Python {before.python}: not to be compared.\n")
    for name, found in table.calls.items():
        was = before.calls.get(name, Found({}))
        print(f"{name}: {_beside(found.ours, was.ours)} steps in the package", end="")
        if found.instructions is not None:
            print(f", {_beside(found.instructions, was.instructions or 0)} instructions", end="")
        layers, layers_before = found.layers(), was.layers()
        each = layers.most_common()
        shown = [f"{one} {_beside(number, layers_before[one])}" for one, number in each]
        print(f"\n  {', '.join(shown)}")
        for function in sorted({*found.steps, *was.steps}, key=_rank(found, was)):
            now, then = found.steps.get(function, 0), was.steps.get(function, 0)
            if function and max(now, then) >= least:
                print(f"{_beside(now, then):>24}  {function}")
        print()


def _rank(found: Found, was: Found) -> Callable[[str], tuple[int, int, str]]:
    return lambda name: (-found.steps.get(name, 0), -was.steps.get(name, 0), name)


def _beside(now: int, before: int) -> str:
    return f"{now:,}" if now == before else f"{now:,} (was {before:,})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.where", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="count few calls, and no instructions")
    parser.add_argument("--servers", action="store_true", help="the calls of bench.walk as well")
    parser.add_argument(
        "--least", type=int, default=20, help="leave out functions with fewer steps"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--against", type=Path, default=KEPT, help="a file that --json has printed")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {KEPT.name}")
    parser.add_argument("--make-calls", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make_calls:
        _make_calls()
        return
    if asked.write and (asked.quick or asked.servers):
        parser.error("--write keeps all figures of the calls that ask no server")
    valgrind = shutil.which("valgrind") is not None and not asked.quick
    table = _table(_FEW if asked.quick else _MANY, servers=asked.servers, instructions=valgrind)
    if asked.write:
        KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(table)) + b"\n")
    if asked.json:
        print(msgspec.json.encode(table).decode())
        return
    before = msgspec.json.decode(asked.against.read_bytes(), type=Table)
    _show(table, before, asked.least)
    if not valgrind and not asked.quick:
        print("valgrind is not installed, so that no instructions were counted")


if __name__ == "__main__":
    main()
