"""Histories: what each caller asked and what it was told, as lines of JSON.

Every operation is an `invoke` and then an `ok`, a `fail` (it surely did not happen here) or an
`info` (nobody can tell); one that never ended is as good as an `info`. Times are those of the
machine's monotonic clock, which all its processes share.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal["invoke", "ok", "fail", "info"]


class Line(msgspec.Struct, omit_defaults=True):
    """Something that a caller did or heard."""

    t: int
    who: str
    key: str
    kind: Kind
    value: str = ""
    ran: bool = False
    why: str = ""
    said: str = ""


class Operation(msgspec.Struct):
    """A line that asked and the one that told."""

    who: str
    start: int
    end: int | None
    kind: Kind
    value: str = ""
    ran: bool = False
    why: str = ""


class History:
    """Written by one process."""

    def __init__(self, folder: str | Path, name: str) -> None:
        """A file of its own."""
        path = Path(folder) / f"history.{name}.jsonl"
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        self._encoder = msgspec.json.Encoder()

    def write(self, line: Line) -> None:
        """The line stands there, whatever becomes of this process."""
        os.write(self._file, self._encoder.encode(line) + b"\n")

    def close(self) -> None:
        """Nothing more is written here."""
        os.close(self._file)


def now() -> int:
    """Nanoseconds, the same for all processes."""
    return time.monotonic_ns()


def lines(folder: str | Path) -> Iterator[Line]:
    """All lines of all processes. What a killed one had half written is left out."""
    decoder = msgspec.json.Decoder(Line)
    for path in sorted(Path(folder).glob("history.*.jsonl")):
        with path.open("rb") as opened:
            for line in opened:
                if line.endswith(b"\n"):
                    yield decoder.decode(line)


def operations(found: Iterable[Line]) -> dict[str, list[Operation]]:
    """The operations of each key, in the order in which they were asked."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    waiting: dict[tuple[str, str], Operation] = {}
    for line in found:
        if line.kind == "invoke":
            # Never answered until now: its process died.
            operation = Operation(line.who, line.t, None, "info")
            waiting[line.who, line.key] = operation
            by_key[line.key].append(operation)
            continue
        operation = waiting.pop((line.who, line.key))
        operation.end, operation.kind = line.t, line.kind
        operation.value, operation.ran, operation.why = line.value, line.ran, line.why
        if operation.kind == "info":
            operation.end = None  # it may still take place
    for one in by_key.values():
        one.sort(key=lambda operation: operation.start)
    return by_key
