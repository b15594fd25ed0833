"""SQLite: a new key and a duplicate, against raw statements on the same file system."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order, protect, protect_async
from bench.timing import Side, Tick, interleave
from oncekey import Once

PAIR: Final = "raw sqlite3, INSERT + UPDATE, 1 caller"
_LEAST_SPEED: Final = 0.7
_LEAST_SPEED_OF_TASKS: Final = 7.5
_TABLE = "CREATE TABLE done (key TEXT PRIMARY KEY, status TEXT NOT NULL, result BLOB)"
_CLAIM = "INSERT INTO done (key, status) VALUES (?, 'running')"
_SETTLE = "UPDATE done SET status = 'completed', result = ? WHERE key = ?"
_READ = "SELECT status, result FROM done WHERE key = ?"
_WAL_HEADER: Final = struct.Struct(">4s7I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_FEWER_THAN_A_CHECKPOINT: Final = 1000


class Callers:
    """New keys of one store, from one caller and from many."""

    def __init__(self, once: Once, settings: Settings) -> None:
        """Threads and loop are there before the clock runs."""
        self._once = once
        self._settings = settings
        self._charge = protect(once)
        self._charge_async = protect_async(once)
        self._pool = ThreadPoolExecutor(settings.threads)
        self._runner = asyncio.Runner()

    def one(self, calls: int) -> None:
        """All from this thread."""
        for _ in range(calls):
            self._charge(new_order(), 40)

    def threads(self, calls: int) -> None:
        """Each thread makes its share."""
        count = self._settings.threads
        list(self._pool.map(self.one, [calls // count] * count))

    def tasks(self, calls: int) -> None:
        """Each task of one loop makes its share."""
        self._runner.run(self._tasks(calls // self._settings.tasks))

    async def _tasks(self, share: int) -> None:
        await asyncio.gather(*(self._task(share) for _ in range(self._settings.tasks)))

    async def _task(self, share: int) -> None:
        for _ in range(share):
            await self._charge_async(new_order(), 40)

    def close(self) -> None:
        """Threads, loop and store are closed."""
        self._pool.shutdown()
        self._runner.run(self._once.aclose())
        self._runner.close()


def new_keys(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """Rates of new keys; all sides have a file of their own."""
    once = Once(f"sqlite:///{folder / 'new.db'}")
    many = settings.threads * settings.each
    with closing(RawSqlite(folder / "raw.db")) as raw, closing(Callers(once, settings)) as callers:

        def pairs(calls: int) -> None:
            for _ in range(calls):
                raw.new(new_order(), b"receipt of an order over 40")

        timings = interleave(
            {
                "raw": Side(pairs, settings.commits),
                "one": Side(callers.one, settings.commits),
                "threads": Side(callers.threads, many),
                "tasks": Side(callers.tasks, many),
            },
            rounds=settings.rounds,
            tick=tick,
        )

    raw_commit = timings.per_call("raw") / 2 * 1e6

    def row(side: str, title: str, least: float | None = None) -> Row:
        speed = timings.speed(side, "raw")
        return Row(
            id=f"sqlite-new-{side}",
            title=f"SQLite, new key, {title}",
            value=1 / timings.per_call(side),
            unit="calls/s",
            against=PAIR,
            against_value=1 / timings.per_call("raw"),
            ratio=speed,
            target="" if least is None else f"at least {least}x",
            met=None if least is None else speed.median >= least,
            remark="" if least is None else f"one raw commit took {raw_commit:,.0f} µs",
        )

    return [
        row("one", "1 caller", _LEAST_SPEED),
        row("threads", f"{settings.threads} threads"),
        row("tasks", f"{settings.tasks} tasks", _LEAST_SPEED_OF_TASKS),
    ]


def duplicates(folder: Path, settings: Settings, tick: Tick) -> Row:
    """The rate of duplicates of one key, against a raw read of one row."""
    with (
        closing(RawSqlite(folder / "raw-read.db")) as raw,
        closing(Once(f"sqlite:///{folder / 'read.db'}")) as once,
    ):
        charge, order = protect(once), new_order()
        raw.new(order, charge(order, 40).encode())

        def reads(calls: int) -> None:
            for _ in range(calls):
                raw.read(order)

        def answers(calls: int) -> None:
            for _ in range(calls):
                charge(order, 40)

        sides = {"raw": Side(reads, settings.reads), "duplicate": Side(answers, settings.reads)}
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        assert charge.outcome(order, 40).duplicate
    return Row(
        id="sqlite-duplicate",
        title="SQLite, duplicate, 1 caller",
        value=1 / timings.per_call("duplicate"),
        unit="calls/s",
        against="raw sqlite3, SELECT by primary key",
        against_value=1 / timings.per_call("raw"),
        ratio=timings.speed("duplicate", "raw"),
    )


def counts(folder: Path, settings: Settings) -> list[Row]:
    """Commits of a new key, read from the log of the file, and statements of a duplicate."""
    path = folder / "counted.db"
    rows: list[Row] = []
    with (
        statements_traced() as statements,
        closing(Callers(once := Once(f"sqlite:///{path}"), settings)) as callers,
    ):
        charge, order = protect(once), new_order()
        charge(order, 40)  # opens and creates whatever is opened and created only once

        def commits(id_: str, title: str, work: Callable[[int], None], target: str = "") -> None:
            before = commits_in(path)
            work(settings.counted)
            per_key = (commits_in(path) - before) / settings.counted
            rows.append(
                Row(
                    id=id_,
                    title=f"SQLite, commits per new key, {title}",
                    value=per_key,
                    unit="commits",
                    target=target,
                    # the keeper adds a commit every ten seconds, for the charts
                    met=round(per_key, 1) == float(target) if target else None,
                )
            )

        commits("sqlite-commits-one", "1 caller", callers.one, "2")
        commits("sqlite-commits-threads", f"{settings.threads} threads", callers.threads)
        commits("sqlite-commits-tasks", f"{settings.tasks} tasks", callers.tasks)

        before = commits_in(path)
        statements.clear()
        for _ in range(settings.counted):
            assert charge.outcome(order, 40).duplicate
        per_call = len(statements) / settings.counted
        reads_only = all(statement.startswith("SELECT") for statement in statements)
        committed = commits_in(path) - before
    rows.append(
        Row(
            id="sqlite-statements-duplicate",
            title="SQLite, statements per duplicate",
            value=per_call,
            unit="statements",
            target="1 read, no commit",
            met=per_call == 1 and reads_only and committed == 0,
            remark=f"{committed} commits",
        )
    )
    return rows


# The limit: the least that code without the library would do, one commit a statement


class RawSqlite:
    """One connection with a table of its own; the statements stay prepared in its cache."""

    def __init__(self, path: Path) -> None:
        """As durable as the store: WAL, and every commit reaches the disk."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_TABLE)

    def new(self, key: str, result: bytes) -> None:
        """A claim and its completion, each committed on its own."""
        self._connection.execute(_CLAIM, (key,))
        self._connection.execute(_SETTLE, (result, key))

    def read(self, key: str) -> bytes:
        """The result, found by the primary key."""
        _, result = self._connection.execute(_READ, (key,)).fetchone()
        assert isinstance(result, bytes)
        return result

    def close(self) -> None:
        """The file is closed."""
        self._connection.close()


# Counts from outside: commits in the file, statements in SQLite


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
