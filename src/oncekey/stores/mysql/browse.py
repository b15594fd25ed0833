"""List and count the records of a MariaDB or MySQL database, by the indexes on `created` and `due`.

InnoDB keeps scope and key at the end of each index, so that every row has a place of its own. A
page goes down the index from one place to another. Held records are the only ones with `due` 0, so
they are counted by an index as well.
"""

from __future__ import annotations

from typing import Any, Final

from oncekey.core.key import stored_key
from oncekey.core.record import Record
from oncekey.stores.browse import (
    RecordCounts,
    RecordPage,
    RecordQuery,
    bad_cursor,
    parse_stored_key,
    per_status,
    whole_number,
)
from oncekey.stores.mysql import statements as sql
from oncekey.stores.mysql.rows import as_written
from oncekey.stores.mysql.statements import LARGEST, literal
from oncekey.stores.mysql.store import MySQLStore

Place = tuple[int, bytes, bytes]
"""A row in an index: when it was created, its scope and its key."""

WINDOW: Final = 2000
"""The number of rows that one page covers."""
MOST: Final = 10_000
"""The number of records that are counted one by one."""
_TOP: Final[Place] = (LARGEST, b"\xff", b"")
_NOW: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
_COLUMNS: Final = (
    "scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, NULL, error, noted, "
    "revision, uncertain, label, reference, created, started, updated, finished, expires, version, "
    "hand, LENGTH(result)"
)
_SIZE: Final = 22
_ORDER: Final = "ORDER BY created DESC, scope DESC, `key` DESC"
_ALL: Final = "oncekey_records FORCE INDEX (oncekey_records_created) WHERE TRUE"
_HELD: Final = "oncekey_records FORCE INDEX (oncekey_records_due) WHERE due = 0"


def list_records(store: MySQLStore, ask: RecordQuery) -> RecordPage:
    """Return a page of records, newest first.

    The end of the page is asked for first, so that nothing is passed over while rows above it go.
    """
    ((now,),) = _run(store, f"SELECT {_NOW}")
    rows = _HELD if ask.status == "held" else _ALL
    start = _start(ask, now)
    beyond = _run(
        store,
        f"SELECT created, scope, `key` FROM {rows} {_from(start)} {_ORDER} LIMIT 1 OFFSET {WINDOW}",  # noqa: S608 - only constants and literals
    )
    end = beyond[0] if beyond else None
    found = _run(
        store,
        f"SELECT {_COLUMNS} FROM {rows} {_from(start)} {'' if end is None else _above(end)} "  # noqa: S608 - as above
        f"AND (expires = 0 OR expires > {now}) {_wish(ask, now)} {_ORDER} LIMIT {ask.limit + 1}",
    )
    told = found[: ask.limit]
    records = [as_written(row) for row in told]
    if len(found) > len(told):
        after: str | None = _cursor(as_written(found[-1]))
    elif end is None or (ask.newer and end[0] < now - ask.newer):
        after = None
    else:
        after = _cursor_at(end)
    sizes = [row[_SIZE] for row in told]
    return RecordPage(records=records, sizes=sizes, after=after, newest_first=True, now=now)


def count_records(store: MySQLStore, *, exact: bool) -> RecordCounts:
    """Count all records, or only the first 10,000 if there are more and `exact` is False.

    Held ones are always counted.
    """
    ((now,),) = _run(store, f"SELECT {_NOW}")
    most = LARGEST if exact else MOST + 1
    groups = _run(
        store,
        "SELECT status, COUNT(*), SUM(status = 'running' AND lease_end <= "  # noqa: S608 - only numbers
        f"{now}) FROM (SELECT status, lease_end FROM oncekey_records WHERE expires = 0 "
        f"OR expires > {now} LIMIT {most}) living GROUP BY status",
    )
    ((held, since),) = _run(
        store,
        f"SELECT COUNT(*), MIN(updated) FROM {_HELD} AND status = 'held'",  # noqa: S608 - only constants
    )
    by_status = per_status({status: count for status, count, _ in groups})
    looked_at = sum(by_status.values())
    whole = exact or looked_at <= MOST
    by_status["held"] = held
    return RecordCounts(
        total=sum(by_status.values()),
        by_status=by_status,
        lapsed=sum(int(over) for *_, over in groups),
        exact=whole,
        held_exact=True,
        at_least=not whole,
        held_since=since,
        looked_at=looked_at,
        now=now,
    )


def read_newer(store: MySQLStore, scope: str | None, key: str) -> Record | None:
    """Return the record, as far as this release understands it, or None."""
    rows = _run(store, sql.get(scope, key))
    return as_written(rows[0]) if rows else None


def where(store: MySQLStore) -> str:
    """Return host, port and database."""
    return store.target.where


def _run(store: MySQLStore, statement: str) -> list[Any]:
    return store.links.here().run(statement)


def _start(ask: RecordQuery, now: int) -> Place:
    """Return the place of the first row of the page, which may be gone."""
    start = _TOP if ask.after is None else _place(ask.after)
    oldest: Place = (now - ask.older, *_TOP[1:])
    return min(start, oldest) if ask.older else start


def _place(after: str) -> Place:
    created, _, stored = after.partition(".")
    found = parse_stored_key(stored)
    try:
        if found is not None:
            return whole_number(created), (found[0] or "").encode(), found[1].encode()
    except ValueError:
        pass
    raise bad_cursor(after)


def _cursor(record: Record) -> str:
    return f"{record.created}.{stored_key(record.scope, record.key)}"


def _cursor_at(place: Place) -> str:
    created, scope, key = place
    return f"{created}.{stored_key(scope.decode() or None, key.decode())}"


def _from(place: Place) -> str:
    """Return the condition for this row and those that follow it: the older ones."""
    created, *name = place
    return (
        f"AND created <= {created} "
        f"AND (created < {created} OR (scope, `key`) <= ({', '.join(map(literal, name))}))"
    )


def _above(place: Place) -> str:
    """Return the condition for the rows before this one: the newer ones."""
    created, *name = place
    return (
        f"AND created >= {created} "
        f"AND (created > {created} OR (scope, `key`) > ({', '.join(map(literal, name))}))"
    )


def _wish(ask: RecordQuery, now: int) -> str:
    """Return the conditions of the query."""
    wishes: list[str] = []
    if ask.status is not None:
        wishes.append(f"status = {literal(ask.status)}")
    if not ask.any_scope:
        wishes.append(f"scope = {literal(ask.scope or '')}")
    if ask.label:
        wishes.append(f"label = {literal(ask.label)}")
    if ask.prefix:
        prefix = ask.prefix.encode()
        wishes.append(f"LEFT(`key`, {len(prefix)}) = {literal(prefix)}")
    if ask.newer:
        wishes.append(f"created >= {now - ask.newer}")
    return "".join(f"AND {wish} " for wish in wishes)
