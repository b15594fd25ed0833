"""The inbox on PostgreSQL: what atomic mode adds to a transaction, and what a purge costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order
from bench.timing import Side, Tick, Timings, interleave
from oncekey.messages import Inbox, Message
from tests.servers.postgres import binaries, serving

_MOST_COST: Final = 1.9
_MOST_STATEMENTS: Final = 4
_LEAST_PURGED: Final = 100_000
_LEAST_SPEED: Final = 0.8
_BATCH: Final = 100
_LEAST_BATCH: Final = 5
TABLE: Final = "CREATE TABLE orders (id bigserial PRIMARY KEY, number text NOT NULL, total int)"
_WRITE: Final = "INSERT INTO orders (number, total) VALUES (%s, %s)"
_HASTY: Final = "?options=-csynchronous_commit%3Doff"
"""No commit waits for the disk: nothing hides behind it."""
_EXPIRED: Final = """
    INSERT INTO processed_messages (consumer, idempotency_key, message_id, message_type, status,
        started_at, completed_at, expires_at, token, nonce)
    SELECT 'old', 'm-' || n, 'm-' || n, 'order.placed', 'completed', NOW() - INTERVAL '9 days',
        NOW() - INTERVAL '9 days', NOW() - INTERVAL '8 days' + n * INTERVAL '1 ms', n, 'x'
    FROM generate_series(1, %s) AS n
"""
_CLAIM: Final = """
    INSERT INTO processed_messages (consumer, idempotency_key, message_id, message_type, status,
        started_at, expires_at, token, nonce)
    VALUES ('by hand', %s, %s, 'order.placed', 'processing',
        NOW(), NOW() + INTERVAL '1 day', 1, 'x')
    ON CONFLICT DO NOTHING RETURNING token
"""
_COMPLETE: Final = """
    UPDATE processed_messages SET status = 'completed', completed_at = NOW(), result = %s
    WHERE consumer = 'by hand' AND idempotency_key = %s AND token = 1 RETURNING token
"""
_SENT: Final = (
    "sent one by one; where psycopg may prepare statements there is one savepoint more, and the 5 "
    "travel in 2 round trips"
)
_PAUSE: Final = 0.2
"""Seconds between two batches of a purge, as the keeper takes them."""


class _Counted(psycopg.Cursor[Any]):
    """Counts what is sent."""

    sent = 0

    def execute(self, *args: Any, **kwargs: Any) -> _Counted:
        _Counted.sent += 1
        return super().execute(*args, **kwargs)


def inbox_rows(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """Rates of one caller, against the same transaction without the inbox."""
    try:
        binaries()
    except RuntimeError:
        return [_cost(None), _statements(None), _many(None), _purge(None, 0.0), _beside(None)]
    with serving(beside=folder.parent, durable=True) as server:
        url = server.new_database()
        timings, statements = _atomic(url, settings, tick)
        batches = _batches(server.new_database(), settings, tick)
        beside, purged = _purging(server.new_database(), settings, tick)
    return [
        _cost(timings),
        _statements(statements),
        _many(batches),
        _purge(beside, purged),
        _beside(beside),
    ]


def _atomic(url: str, settings: Settings, tick: Tick) -> tuple[Timings, int]:
    sides: dict[str, Side] = {}
    with ExitStack() as opened:
        inbox = opened.enter_context(closing(Inbox(url, "bench", observers=())))
        inbox.migrate()
        for name, way in {"": url, " hasty": url + _HASTY}.items():
            connection = opened.enter_context(psycopg.connect(way, autocommit=True))
            if not name:
                connection.execute(TABLE)
            sides[f"raw{name}"] = Side(transactions(connection), settings.commits)
            sides[f"atomic{name}"] = Side(messages(connection, inbox), settings.commits)
            sides[f"by hand{name}"] = Side(by_hand(connection), settings.commits)
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.cursor_factory = _Counted
        connection.prepare_threshold = None  # one by one: two at once are not seen by a cursor
        _Counted.sent = 0
        messages(connection, inbox)(1)
        return timings, _Counted.sent - 1  # the business insert is not ours


def transactions(connection: psycopg.Connection) -> Callable[[int], None]:
    def work(calls: int) -> None:
        for _ in range(calls):
            with connection.transaction():
                connection.execute(_WRITE, (new_order(), 40))

    return work


def by_hand(connection: psycopg.Connection) -> Callable[[int], None]:
    """The least that can be sent: the same four statements, two at a time, and nothing checked."""

    def work(calls: int) -> None:
        for _ in range(calls):
            number = new_order()
            with connection.transaction():
                with connection.pipeline():
                    connection.execute("SAVEPOINT by_hand")
                    connection.execute(_CLAIM, (number, number))
                connection.execute(_WRITE, (number, 40))
                with connection.pipeline():
                    connection.execute(_COMPLETE, (b"40", number))
                    connection.execute("RELEASE SAVEPOINT by_hand")

    return work


def messages(connection: psycopg.Connection, inbox: Inbox) -> Callable[[int], None]:
    def work(calls: int) -> None:
        for _ in range(calls):
            number = new_order()
            message = Message(id=number, type="order.placed")
            with connection.transaction(), inbox.atomic(connection, message) as delivery:
                connection.execute(_WRITE, (number, 40))
                delivery.complete(40)

    return work


def _batches(url: str, settings: Settings, tick: Tick) -> Timings:
    """The same messages one by one, and in batches."""
    calls = _BATCH * max(1, settings.commits // _BATCH)
    with ExitStack() as opened:
        inbox = opened.enter_context(closing(Inbox(url, "bench", observers=())))
        inbox.migrate()
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(TABLE)
        sides = {
            "single": Side(messages(connection, inbox), calls),
            "batch": Side(_many_messages(connection, inbox), calls),
        }
        return interleave(sides, rounds=settings.rounds, tick=tick)


def _many_messages(connection: psycopg.Connection, inbox: Inbox) -> Callable[[int], None]:
    def work(calls: int) -> None:
        for _ in range(calls // _BATCH):
            messages = [Message(id=new_order(), type="order.placed") for _ in range(_BATCH)]
            with connection.transaction(), inbox.atomic_many(connection, messages) as batch:
                new = [(one.message.id, 40) for one in batch if not one.duplicate]
                connection.cursor().executemany(_WRITE, new)
                for delivery in batch:
                    delivery.complete(40)

    return work


def _purging(url: str, settings: Settings, tick: Tick) -> tuple[Timings, float]:
    """Claims alone and beside a purge, and how many rows went in a minute of it."""
    calls = settings.commits * 3
    gone: list[float] = []
    with ExitStack() as opened:
        inbox = opened.enter_context(closing(Inbox(url, "bench", observers=())))
        inbox.migrate()
        connection = opened.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(TABLE)
        connection.execute(_EXPIRED, (settings.rounds * calls * 20,))
        connection.execute("ANALYZE processed_messages")
        work = messages(connection, inbox)

        def beside(count: int) -> None:
            with _purge_beside(inbox, gone):
                work(count)

        sides = {"alone": Side(work, calls), "beside a purge": Side(beside, calls)}
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
    return timings, sum(gone) / max(1, len(gone))


@contextmanager
def _purge_beside(inbox: Inbox, gone: list[float]) -> Iterator[None]:
    """A purge goes on inside the block; its rate per minute is added to the list."""
    over, done = threading.Event(), [0]

    class _OverError(Exception):
        """The block has ended."""

    def progress(total: int) -> None:
        done[0] = total
        if over.wait(_PAUSE):
            raise _OverError

    def purge() -> None:
        try:
            inbox.purge(progress=progress)
        except _OverError:
            return

    thread = threading.Thread(target=purge)
    started = time.perf_counter()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        gone.append(done[0] / (time.perf_counter() - started) * 60)


def _cost(timings: Timings | None) -> Row:
    cost = None if timings is None else timings.cost("atomic", "raw")
    return Row(
        id="inbox-atomic",
        title="Inbox, atomic mode on PostgreSQL, one insert per message",
        value=0.0 if timings is None else 1 / timings.per_call("atomic"),
        unit="messages/s",
        against="the same transaction without the inbox",
        against_value=None if timings is None else 1 / timings.per_call("raw"),
        ratio=cost,
        target=f"at most {_MOST_COST}x the time",
        met=None if cost is None else cost.median <= _MOST_COST,
        remark=_remark(timings),
    )


def _remark(timings: Timings | None) -> str:
    if timings is None:
        return "no PostgreSQL was found"
    return (
        f"the ratio is of times; the same four statements by hand, in two round trips and "
        f"without any check, cost {timings.cost('by hand', 'raw').median:.2f}x; with "
        f"synchronous_commit=off a raw transaction took "
        f"{timings.per_call('raw hasty') * 1e6:,.0f} µs, and the ratios were "
        f"{timings.cost('atomic hasty', 'raw hasty').median:.2f}x, and by hand "
        f"{timings.cost('by hand hasty', 'raw hasty').median:.2f}x"
    )


def _statements(count: int | None) -> Row:
    return Row(
        id="inbox-statements",
        title="Inbox, atomic mode, statements added to a transaction",
        value=0.0 if count is None else float(count),
        unit="statements",
        target="4: claim, completion, savepoint, release",
        met=None if count is None else count <= _MOST_STATEMENTS,
        remark="no PostgreSQL was found" if count is None else _SENT,
    )


def _many(timings: Timings | None) -> Row:
    speed = None if timings is None else timings.speed("batch", "single")
    return Row(
        id="inbox-batch",
        title=f"Inbox, batches of {_BATCH} messages on PostgreSQL",
        value=0.0 if timings is None else 1 / timings.per_call("batch"),
        unit="messages/s",
        against="the same messages one by one, a transaction each",
        against_value=None if timings is None else 1 / timings.per_call("single"),
        ratio=speed,
        target=f"at least {_LEAST_BATCH}x",
        met=None if speed is None else speed.median >= _LEAST_BATCH,
        remark="no PostgreSQL was found" if timings is None else "",
    )


def _purge(timings: Timings | None, rate: float) -> Row:
    return Row(
        id="inbox-purge",
        title="Inbox, expired rows purged while messages are processed",
        value=rate,
        unit="rows/min",
        target=f"at least {_LEAST_PURGED:,}",
        met=None if timings is None else rate >= _LEAST_PURGED,
        remark="no PostgreSQL was found" if timings is None else "",
    )


def _beside(timings: Timings | None) -> Row:
    speed = None if timings is None else timings.speed("beside a purge", "alone")
    return Row(
        id="inbox-beside-purge",
        title="Inbox, atomic mode while a purge goes on",
        value=0.0 if timings is None else 1 / timings.per_call("beside a purge"),
        unit="messages/s",
        against="the same without the purge",
        against_value=None if timings is None else 1 / timings.per_call("alone"),
        ratio=speed,
        target=f"at least {_LEAST_SPEED}x",
        met=None if speed is None else speed.median >= _LEAST_SPEED,
        remark="no PostgreSQL was found" if timings is None else "",
    )
