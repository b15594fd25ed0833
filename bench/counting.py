"""Counting from outside: commits in the file, statements in SQLite, verbs at a store."""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from oncekey.stores import Store
from oncekey.stores.base import VERBS

_WAL_HEADER: Final = struct.Struct(">4s7I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_FEWER_THAN_A_CHECKPOINT: Final = 1000


def commits_in(path: Path) -> int:
    """How many transactions the write-ahead log of the file holds.

    A frame that ends a transaction says how large the file is afterwards, any other says 0.
    """
    log = path.with_name(path.name + "-wal").read_bytes()
    _, _, page, _, *salts, _, _ = _WAL_HEADER.unpack_from(log)
    frames = range(_WAL_HEADER.size, len(log), _FRAME_HEADER.size + page)
    assert len(frames) < _FEWER_THAN_A_CHECKPOINT, "the log may have begun again at its start"
    headers = [_FRAME_HEADER.unpack_from(log, frame) for frame in frames]
    return sum(1 for _, size, *frame_salts, _, _ in headers if size and frame_salts == salts)


@contextmanager
def statements_traced() -> Iterator[list[str]]:
    """Every statement that SQLite runs on connections opened in this block, now and later."""
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(statements.append)
        return connection

    with mock.patch.object(sqlite3, "connect", traced):
        yield statements


class CountingStore:
    """A store that hands every verb to another one, in both colours, and counts them."""

    def __init__(self, store: Store, verbs: Counter[str] | None = None) -> None:
        """`verbs` has the counts, for whoever asks through whichever colour."""
        self._store = store
        self.verbs: Counter[str] = Counter() if verbs is None else verbs

    def __getattr__(self, name: str) -> Any:
        """What the store has under that name; a verb is counted when it is called."""
        found = getattr(self._store, name)
        return self._counted(name, found) if name in VERBS else found

    def as_async(self) -> CountingStore:
        """The same for coroutines, with the same counts."""
        made: Any = self._store
        return CountingStore(made.as_async(), self.verbs)

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object) -> Any:
            self.verbs[name] += 1
            return verb(*args)

        return call
