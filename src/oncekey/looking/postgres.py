"""Looking at a PostgreSQL database, by the indexes that `0003_newest.sql` makes.

A page walks down the index, over at most so many rows. Counts come from some of the pages of the
table, once there are too many rows to count.
"""

from __future__ import annotations

from struct import pack
from typing import Final

from oncekey.core.record import Record
from oncekey.looking import postgres_sql as sql
from oncekey.looking import scanning
from oncekey.looking.ask import Counts, Look, Sight, at_least, tally
from oncekey.looking.order import Mark, mark_of
from oncekey.stores.postgres.protocol import Statement
from oncekey.stores.postgres.rows import as_written, fields, to_number
from oncekey.stores.postgres.statements import GET, of_get
from oncekey.stores.postgres.store import PostgresStore

_SMALL: Final = 300
"""Pages of a table whose rows are counted one by one."""
_SAMPLED: Final = 50
"""Pages that stand for all of them."""
_COLUMNS: Final = 21
"""Fields of a row that are the record; the size of its result, the time and its place follow."""


def look(store: PostgresStore, ask: Look) -> Sight:
    """A page, newest first; by scope and key as long as nobody has made the indexes."""
    if not _indexed(store):
        return scanning.look(store, ask)
    held = ask.status == "held"
    found = _run(store, sql.page(ask.limit, held=held), *_from_here(ask), *_wish(ask))
    records = [as_written(row) for row in found[: ask.limit]]
    beside = [fields(row, _COLUMNS + 3)[_COLUMNS:] for row in found]
    if len(found) > len(records):
        after: str | None = str(Mark(records[-1].created, _number(beside[len(records) - 1][2])))
    else:
        after = _end(_run(store, sql.END_OF_HELD if held else sql.END, *_from_here(ask)[:3]))
    return Sight(
        records=records,
        sizes=[None if size is None else to_number(size) for size, *_ in beside[: ask.limit]],
        after=after,
        newest_first=True,
        now=_number(beside[0][1] if beside else _run(store, sql.CLOCK)[0]),
    )


def counts(store: PostgresStore, *, exact: bool) -> Counts:
    """All of them where there are few, else what some pages of the table show."""
    pages, pages_then, rows_then, now = map(_number, fields(_run(store, sql.SIZE)[0], 4))
    if exact or pages <= _SMALL:
        living, total = _groups(_run(store, sql.COUNT))
        return Counts(
            total=sum(living.values()),
            by_status=tally(living),
            exact=True,
            looked_at=total,
            now=now,
        )
    share = _SAMPLED / pages
    living, seen = _groups(_run(store, sql.SAMPLE, pack(">d", 100 * share)))
    rows = rows_then * pages / pages_then if rows_then > 0 and pages_then else seen / share
    by_status = tally(living, rows / max(seen, 1))
    if _indexed(store):
        newest, more = _groups(_run(store, sql.NEWEST))
        held, _ = _groups(_run(store, sql.COUNT_OF_HELD))
        if held.get("held", 0) <= sql.COUNTED:
            by_status["held"] = held.get("held", 0)
        by_status = at_least(by_status, newest | held)
        seen += more
    return Counts(
        total=sum(by_status.values()), by_status=by_status, exact=False, looked_at=seen, now=now
    )


def due(store: PostgresStore, grace: int) -> int:
    """How many may have expired so long ago, a million at most."""
    return to_number(_run(store, sql.DUE, _bytes(grace))[0])


def read_newer(store: PostgresStore, scope: str | None, key: str) -> Record | None:
    """The record, as far as this release understands it."""
    rows = _run(store, GET, *of_get(scope, key))
    return as_written(rows[0]) if rows else None


def _indexed(store: PostgresStore) -> bool:
    return to_number(_run(store, sql.INDEXED)[0]) == len(sql.INDEXES)


def _from_here(ask: Look) -> tuple[bytes, ...]:
    created, passed = mark_of(ask.after)
    return tuple(map(_bytes, (created, ask.older, ask.newer, passed)))


def _wish(ask: Look) -> tuple[bytes | None, ...]:
    return (
        b"\x01" if ask.any_scope else b"\x00",
        (ask.scope or "").encode(),
        None if ask.status is None else ask.status.encode(),
        ask.label.encode(),
        ask.prefix.encode(),
        _bytes(ask.limit + 1),
    )


def _end(rows: list[bytes]) -> str | None:
    """Where the next page starts, if the walk has come to its end before the index has."""
    if len(rows) < 2:  # noqa: PLR2004 - the last row and the one that follows
        return None
    return str(Mark(*map(_number, fields(rows[0], 2))))


def _groups(rows: list[bytes]) -> tuple[dict[str, int], int]:
    """How many of each status live, and how many were looked at."""
    living: dict[str, int] = {}
    total = 0
    for row in rows:
        status, lives, count = fields(row, 3)
        total += _number(count)
        if lives == b"\x01":
            living[(status or b"").decode()] = _number(count)
    return living, total


def _run(store: PostgresStore, statement: Statement, *values: bytes | None) -> list[bytes]:
    return store._links.here().run(statement, values)  # noqa: SLF001 - the way that its verbs go


def _number(data: bytes | None) -> int:
    return to_number(data or b"")


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, signed=True)
