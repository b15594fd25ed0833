"""Looking at a SQLite file. Its rows are numbered in the order in which records were made.

A page walks down the numbers, at most so many of them. How many records there are is told by
probing numbers at random, once there are too many to count.
"""

from __future__ import annotations

from random import choices
from typing import Any, Final

from msgspec.structs import replace

from oncekey.core.record import FORMAT, Record
from oncekey.looking import sqlite_sql as sql
from oncekey.looking.ask import Counts, Look, Sight, at_least, bad_cursor, tally, whole_number
from oncekey.stores.sqlite import statements as file
from oncekey.stores.sqlite.store import SQLiteStore

_WINDOW: Final = 2000
"""Numbers that one page walks over."""
_RUNS: Final = 12
_RUN: Final = 10
"""Numbers that stand for all of them: neighbours, which stand in one page of the file."""
_NEWEST: Final = 400
"""Numbers at the top that are counted one by one: what runs now is there."""
_SIZE, _ROWID = 21, 22


def look(store: SQLiteStore, ask: Look) -> Sight:
    """A page, newest first."""
    now = _now(store)
    start = _start(store, ask, now)
    if start is None:
        return Sight(records=[], sizes=[], after=None, newest_first=True, now=now)
    held = ask.status == "held" and _indexed(store)
    bounds = (start,) if held else (start, start - _WINDOW, now)
    wish, values = _wish(ask, now)
    statement = f"{sql.HELD_PAGE if held else sql.PAGE}{wish}ORDER BY rowid DESC LIMIT ?"
    rows = _rows(store, statement, *bounds, *values, ask.limit + 1)
    told = rows[: ask.limit]
    if len(rows) > len(told):
        after = told[-1][_ROWID]
    else:
        after = None if held else _below(store, start - _WINDOW, ask, now)
    return Sight(
        records=[_read(row) for row in told],
        sizes=[row[_SIZE] for row in told],
        after=None if after is None else str(after),
        newest_first=True,
        now=now,
    )


def counts(store: SQLiteStore, *, exact: bool) -> Counts:
    """All of them where few numbers were given out, else what some numbers show."""
    now = _now(store)
    lowest, highest = _rows(store, sql.ENDS)[0]
    if exact or highest is None or highest - lowest < sql.COUNTED:
        seen = dict(_rows(store, f"{sql.COUNT} GROUP BY status", now))
        return _counted(tally(seen), sum(seen.values()), now, exact=True)
    starts = choices(range(lowest, highest - _RUN + 2), k=_RUNS)  # noqa: S311 - no secrets
    numbers = {start + number for start in starts for number in range(_RUN)}
    marks = ", ".join("?" * len(numbers))
    probed = dict(
        _rows(store, f"{sql.COUNT} AND rowid IN ({marks}) GROUP BY status", now, *numbers)
    )
    newest = dict(
        _rows(store, f"{sql.COUNT} AND rowid > ? GROUP BY status", now, highest - _NEWEST)
    )
    by_status = at_least(tally(probed, (highest - lowest + 1) / len(numbers)), newest)
    if _indexed(store):
        held: int = _rows(store, sql.HELD_COUNT)[0][0]
        by_status["held"] = held if held <= sql.COUNTED else max(held, by_status["held"])
    looked_at = sum(probed.values()) + sum(newest.values())
    return _counted(by_status, looked_at, now, exact=False)


def due(store: SQLiteStore, grace: int) -> int:
    """How many have expired so long ago, a million at most."""
    then = _now(store) - grace
    count: int = _rows(store, sql.DUE, then, then)[0][0]
    return count


def read_newer(store: SQLiteStore, scope: str | None, key: str) -> Record | None:
    """The record, as far as this release understands it."""
    rows = _rows(store, file.SELECT_ONE, scope or "", key)
    record = _read(rows[0]) if rows else None
    return None if record is None or 0 < record.expires <= _now(store) else record


def _counted(by_status: dict[str, int], looked_at: int, now: int, *, exact: bool) -> Counts:
    total = sum(by_status.values())
    return Counts(total=total, by_status=by_status, exact=exact, looked_at=looked_at, now=now)


def _start(store: SQLiteStore, ask: Look, now: int) -> int | None:
    """The highest number of the page; None when there is nothing that low."""
    try:
        below = 2**63 - 1 if ask.after is None else whole_number(ask.after)
    except ValueError:
        raise bad_cursor(ask.after) from None
    highest: int | None = _rows(store, sql.HIGHEST, below)[0][0]
    if highest is None or not ask.older:
        return highest
    return _older(store, highest, now - ask.older)


def _older(store: SQLiteStore, highest: int, created: int) -> int | None:
    """The highest number up to this one whose record was created by then: half and half again."""
    ((lowest, _),) = _rows(store, sql.ENDS)
    low, high = lowest - 1, highest
    while low < high:
        middle = (low + high + 1) // 2
        found = _rows(store, sql.AT, middle)
        if found and found[0][1] > created:
            high = found[0][0] - 1
        else:
            low = middle
    return low if low >= lowest else None


def _below(store: SQLiteStore, floor: int, ask: Look, now: int) -> int | None:
    """Where the next page starts, if there is anything under this one that may be wanted."""
    found = _rows(store, sql.AT, floor)
    if not found or (ask.newer and found[0][1] < now - ask.newer):
        return None
    number: int = found[0][0] + 1
    return number


def _wish(ask: Look, now: int) -> tuple[str, list[object]]:
    """What was chosen by, and the values for it."""
    wishes: dict[str, object] = {}
    if ask.status is not None:
        wishes["status = ?"] = ask.status
    if not ask.any_scope:
        wishes["scope = ?"] = ask.scope or ""
    if ask.label:
        wishes["label = ?"] = ask.label
    if ask.prefix:
        wishes["substr(key, 1, ?) = ?"] = ask.prefix
    if ask.older:
        wishes["created <= ?"] = now - ask.older
    if ask.newer:
        wishes["created >= ?"] = now - ask.newer
    values: list[object] = []
    for wish, value in wishes.items():
        values += [len(ask.prefix), value] if wish.count("?") > 1 else [value]
    return "".join(f"AND {wish} " for wish in wishes), values


def _read(row: Any) -> Record:  # noqa: ANN401 - sqlite3 rows are untyped
    """The record in a row, also when a newer release wrote it."""
    if row[20] <= FORMAT:
        return file.from_row(row)
    return replace(file.from_row((*row[:20], FORMAT)), version=row[20])


def _indexed(store: SQLiteStore) -> bool:
    return bool(_rows(store, sql.HAS_HELD_INDEX))


def _rows(store: SQLiteStore, statement: str, *values: object) -> list[Any]:
    return store._rows(statement, *values)  # noqa: SLF001 - the connection that its reads go by


def _now(store: SQLiteStore) -> int:
    return store._clock()  # noqa: SLF001 - ages are told by the clock that made the records
