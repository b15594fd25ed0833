"""List and count the records of a PostgreSQL database, by the indexes on `created`.

A page goes down the index, over a limited number of rows. If there are too many rows to count, they
are estimated from some pages of the table.
"""

from __future__ import annotations

from functools import cache
from struct import pack
from typing import Final

from oncekey.core.record import Record
from oncekey.stores import browse
from oncekey.stores.browse import (
    NewestFirst,
    RecordCounts,
    RecordPage,
    RecordQuery,
    StoreSize,
    at_least,
    newest_first_from,
    per_status,
)
from oncekey.stores.postgres.protocol import Statement
from oncekey.stores.postgres.rows import as_written, fields, to_number
from oncekey.stores.postgres.statements import GET, of_get, statement
from oncekey.stores.postgres.store import PostgresStore

# The statements. Each result has one column.

WINDOW: Final = 5000
"""The number of rows that one page covers. It is in the text, so that no plan sorts the table."""
_NEWEST: Final = 1000
_FEWEST: Final = 128

_NOW: Final = "(SELECT oncekey_now_v1())"
_LIVING: Final = f"(t.expires = 0 OR t.expires > {_NOW})"
_COLUMNS: Final = (
    "t.scope, t.key, t.status, t.fingerprint, t.token, t.nonce, t.attempt, t.lease_end, "
    "NULL::bytea, t.error, t.noted, t.revision, t.uncertain, t.label, t.reference, t.created, "
    "t.started, t.updated, t.finished, t.expires, t.version, t.due, t.waited, t.hand"
)
_ANY: Final = "true"
_HELD: Final = "t.due = 0"


def _walk(rows: str, most: int) -> str:
    """Return a query that goes down the index, from the start of the page or the minimum age.

    `place` counts the rows, and `first` is the place of the first row with the same time. Only the
    index provides the order, and there is only one bound: any other plan would sort.
    """
    return (
        "SELECT t.*, row_number() OVER walk AS place, rank() OVER walk AS first "  # noqa: S608 - only constants
        f"FROM oncekey_records t WHERE {rows} "
        "AND t.created <= (SELECT least($1::bigint, oncekey_now_v1() - $2::bigint)) "
        f"WINDOW walk AS (ORDER BY t.created DESC) LIMIT {most}"
    )


_NEW_ENOUGH: Final = f"($3::bigint = 0 OR t.created >= {_NOW} - $3)"


def page_statement(limit: int, *, held: bool) -> Statement:
    """Return the statement for a page: records without results, their sizes, the time and places.

    The planner must know that few rows are wanted, so the text contains a number that is at least
    the limit.
    """
    return _page_statement(_HELD if held else _ANY, max(_FEWEST, 1 << limit.bit_length()))


@cache
def _page_statement(rows: str, most: int) -> Statement:
    text = (
        f"SELECT * FROM (SELECT ROW({_COLUMNS}, octet_length(t.result)::bigint, {_NOW}, "  # noqa: S608 - only constants
        f"t.place - t.first + 1) FROM ({_walk(rows, WINDOW)}) t WHERE {_LIVING} AND {_NEW_ENOUGH} "
        "AND NOT (t.created = $1 AND t.place <= $4::bigint) "
        "AND ($5 OR t.scope = $6) AND ($7::text IS NULL OR t.status = $7) "
        f"AND ($8 = '' OR t.label = $8) AND starts_with(t.key, $9) LIMIT {most}) t "
        "LIMIT $10::bigint"
    )
    return statement(text, 10)


def _end_statement(rows: str) -> Statement:
    """Return the statement for the last row of a page and the next one, if they are new enough."""
    text = (
        f"SELECT ROW(t.created, t.place - t.first + 1) FROM ({_walk(rows, WINDOW + 1)}) t "  # noqa: S608 - only constants
        f"WHERE t.place >= {WINDOW} AND {_NEW_ENOUGH}"
    )
    return statement(text, 3)


END: Final = _end_statement(_ANY)
END_OF_HELD: Final = _end_statement(_HELD)
INDEXES: Final = ("oncekey_records_created", "oncekey_records_held")
INDEXED: Final = statement(
    "SELECT count(*) FROM pg_index WHERE indrelid = 'oncekey_records'::regclass AND indisvalid "  # noqa: S608 - only constants
    f"AND indexrelid IN (to_regclass('{INDEXES[0]}'), to_regclass('{INDEXES[1]}'))",
    0,
)
TOP: Final = statement("SELECT coalesce(max(created), 0) FROM oncekey_records", 0)
CLOCK: Final = statement("SELECT oncekey_now_v1()", 0)
SIZE: Final = statement(
    "SELECT ROW(pg_relation_size(oid) / current_setting('block_size')::bigint, "
    "relpages::bigint, reltuples::bigint, oncekey_now_v1()) "
    "FROM pg_class WHERE oid = 'oncekey_records'::regclass",
    0,
)
"""The number of pages of the table now; pages and rows at the last vacuum; the time."""
_GROUPED: Final = (
    f"SELECT ROW(t.status, {_LIVING}, count(*), "
    f"count(*) FILTER (WHERE t.status = 'running' AND t.lease_end <= {_NOW}))"
)
COUNT: Final = statement(
    f"{_GROUPED} FROM oncekey_records t GROUP BY t.status, {_LIVING}",
    0,
)
SAMPLE: Final = statement(
    f"{_GROUPED} FROM oncekey_records t TABLESAMPLE SYSTEM ($1::float8) "
    f"GROUP BY t.status, {_LIVING}",
    1,
)
NEWEST: Final = statement(
    f"{_GROUPED} FROM (SELECT * FROM oncekey_records t ORDER BY t.created DESC LIMIT {_NEWEST}) t "  # noqa: S608 - only constants
    f"GROUP BY t.status, {_LIVING}",
    0,
)
COUNT_OF_HELD: Final = statement(
    "SELECT ROW(count(*), coalesce(min(t.updated), 0)) FROM oncekey_records t "  # noqa: S608 - only constants
    f"WHERE {_HELD} AND t.status = 'held'",
    0,
)
DUE: Final = statement(
    "SELECT count(*) FROM (SELECT FROM oncekey_records t WHERE t.due > 0 "
    "AND t.due <= (SELECT oncekey_now_v1() - $1::bigint) LIMIT 1000000) t",
    1,
)


_SMALL: Final = 300
"""The number of pages up to which all rows of a table are counted."""
_SAMPLED: Final = 50
"""The number of pages in a sample."""
_FIELDS: Final = 24
"""The number of fields of the record. The size of its result, the time and its place follow."""


def list_records(store: PostgresStore, ask: RecordQuery) -> RecordPage:
    """Return a page of records, newest first; by scope and key if the indexes are missing."""
    if not _indexed(store):
        return browse.list_records(store, ask)
    found, end = _page(store, ask, newest_first_from(ask.after)), None
    if len(found) <= ask.limit:
        # The window ends before the page is full. Its end is asked for before the page, so that
        # nothing is passed over while rows above the end go.
        start = _fixed(store, ask)
        end = _end(store, ask, start)
        found = _page(store, ask, start)
        if end is not None:
            found = [row for row in found if _place(row) >= (end.created, -end.passed)]
    records = [as_written(row) for row in found[: ask.limit]]
    beside = [fields(row, _FIELDS + 3)[_FIELDS:] for row in found]
    if len(found) > len(records):
        end = NewestFirst(records[-1].created, _number(beside[len(records) - 1][2]))
    return RecordPage(
        records=records,
        sizes=[None if size is None else to_number(size) for size, *_ in beside[: ask.limit]],
        after=None if end is None else str(end),
        newest_first=True,
        now=_number(beside[0][1] if beside else _run(store, CLOCK)[0]),
    )


def _page(store: PostgresStore, ask: RecordQuery, start: NewestFirst) -> list[bytes]:
    held = ask.status == "held"
    return _run(store, page_statement(ask.limit, held=held), *_from(start, ask), *_wish(ask))


def _end(store: PostgresStore, ask: RecordQuery, start: NewestFirst) -> NewestFirst | None:
    """Return the last row of the window that starts there, or None if the index ends first."""
    rows = _run(store, END_OF_HELD if ask.status == "held" else END, *_from(start, ask)[:3])
    if len(rows) < 2:  # noqa: PLR2004 - the last row and the one that follows
        return None
    return NewestFirst(*map(_number, fields(rows[0], 2)))


def _fixed(store: PostgresStore, ask: RecordQuery) -> NewestFirst:
    """Return a start of the page that does not move: no row that comes later is below it."""
    start = newest_first_from(ask.after)
    if ask.after is None:
        start = NewestFirst(_number(_run(store, TOP)[0]))
    if ask.older:
        start = min(start, NewestFirst(_number(_run(store, CLOCK)[0]) - ask.older))
    return start


def _place(row: bytes) -> tuple[int, int]:
    """Return when the record of a row of a page was created, and its place among such records."""
    *_, place = fields(row, _FIELDS + 3)
    return as_written(row).created, -_number(place)


def count_records(store: PostgresStore, *, exact: bool) -> RecordCounts:
    """Count all records if the table is small or `exact` is set, else estimate."""
    pages, pages_then, rows_then, now = map(_number, fields(_run(store, SIZE)[0], 4))
    if exact or pages <= _SMALL:
        living, over, total = _groups(_run(store, COUNT))
        return RecordCounts(
            total=sum(living.values()),
            by_status=per_status(living),
            lapsed=over,
            exact=True,
            held_exact=True,
            held_since=_held(store)[1],
            looked_at=total,
            now=now,
        )
    share = _SAMPLED / pages
    living, over, seen = _groups(_run(store, SAMPLE, pack(">d", 100 * share)))
    rows = rows_then * pages / pages_then if rows_then > 0 and pages_then else seen / share
    by_status = per_status(living, rows / max(seen, 1))
    over = round(over * rows / max(seen, 1))
    indexed, since = _indexed(store), None
    if indexed:
        newest, new_over, more = _groups(_run(store, NEWEST))
        over = max(over, new_over)
        by_status = at_least(by_status, newest)
        by_status["held"], since = _held(store)
        seen += more
    return RecordCounts(
        total=sum(by_status.values()),
        by_status=by_status,
        lapsed=over,
        exact=False,
        held_exact=indexed,
        held_since=since,
        looked_at=seen,
        now=now,
    )


BYTES: Final = statement("SELECT pg_total_relation_size('oncekey_records')::bigint", 0)
NEW: Final = statement(
    "SELECT count(*) FROM oncekey_records t "
    "WHERE t.created > (SELECT oncekey_now_v1() - 86400000000)",
    0,
)


def measure(store: PostgresStore, total: int) -> StoreSize:  # noqa: ARG001 - the server tells it
    """Return the size of the table with its indexes, and how many rows are younger than a day."""
    size = to_number(_run(store, BYTES)[0])
    return StoreSize(bytes=size, exact=True, new=to_number(_run(store, NEW)[0]))


def count_due(store: PostgresStore, grace: int) -> int:
    """Return the number of records that may have expired so long ago, at most a million."""
    return to_number(_run(store, DUE, _bytes(grace))[0])


def read_newer(store: PostgresStore, scope: str | None, key: str) -> Record | None:
    """Return the record, as far as this release understands it, or None."""
    rows = _run(store, GET, *of_get(scope, key))
    return as_written(rows[0]) if rows else None


def _held(store: PostgresStore) -> tuple[int, int | None]:
    """Return how many are held, and since when the oldest one is."""
    count, since = map(_number, fields(_run(store, COUNT_OF_HELD)[0], 2))
    return count, since or None


def _indexed(store: PostgresStore) -> bool:
    return to_number(_run(store, INDEXED)[0]) == len(INDEXES)


def _from(start: NewestFirst, ask: RecordQuery) -> tuple[bytes, ...]:
    created, passed = start
    return tuple(map(_bytes, (created, ask.older, ask.newer, passed)))


def _wish(ask: RecordQuery) -> tuple[bytes | None, ...]:
    return (
        b"\x01" if ask.any_scope else b"\x00",
        (ask.scope or "").encode(),
        None if ask.status is None else ask.status.encode(),
        ask.label.encode(),
        ask.prefix.encode(),
        _bytes(ask.limit + 1),
    )


def _groups(rows: list[bytes]) -> tuple[dict[str, int], int, int]:
    """Return the living records by status, how many of them have lapsed, and the number of rows."""
    living: dict[str, int] = {}
    over = total = 0
    for row in rows:
        status, lives, count, lapsed = fields(row, 4)
        total += _number(count)
        if lives == b"\x01":
            living[(status or b"").decode()] = _number(count)
            over += _number(lapsed)
    return living, over, total


def _run(store: PostgresStore, statement: Statement, *values: bytes | None) -> list[bytes]:
    return store.links.here().run(statement, values)


def _number(data: bytes | None) -> int:
    return to_number(data or b"")


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, signed=True)


def where(store: PostgresStore) -> str:
    """Return host, port and database."""
    return store.target.where
