"""The statements that look at a PostgreSQL database. Everything comes back in one column."""

from __future__ import annotations

from functools import cache
from typing import Final

from oncekey.stores.postgres.protocol import Statement
from oncekey.stores.postgres.statements import statement

WINDOW: Final = 5000
"""Rows that one page walks over. It stands in the text, so that no plan sorts the whole table."""
COUNTED: Final = 10_000
"""Held records that are counted one by one."""
_NEWEST: Final = 1000
_FEWEST: Final = 128

_NOW: Final = "(SELECT oncekey_now_v1())"
_LIVING: Final = f"(t.expires = 0 OR t.expires > {_NOW})"
_COLUMNS: Final = (
    "t.scope, t.key, t.status, t.fingerprint, t.token, t.nonce, t.attempt, t.lease_end, "
    "NULL::bytea, t.error, t.noted, t.revision, t.uncertain, t.label, t.reference, t.created, "
    "t.started, t.updated, t.finished, t.expires, t.version"
)
_ANY: Final = "true"
_HELD: Final = "t.due = 0"


def _walk(rows: str, most: int) -> str:
    """Rows down the index, from a moment that is neither newer nor younger than was asked for.

    `place` counts them, and `first` is the place of the first one of the same moment. Nothing but
    the index gives the order, and only one bound is known: any other plan would sort.
    """
    return (
        "SELECT t.*, row_number() OVER walk AS place, rank() OVER walk AS first "  # noqa: S608 - only constants
        f"FROM oncekey_records t WHERE {rows} "
        "AND t.created <= (SELECT least($1::bigint, oncekey_now_v1() - $2::bigint)) "
        f"WINDOW walk AS (ORDER BY t.created DESC) LIMIT {most}"
    )


_NEW_ENOUGH: Final = f"($3::bigint = 0 OR t.created >= {_NOW} - $3)"


def page(limit: int, *, held: bool) -> Statement:
    """Records without their results, the sizes of these, the time, and how many of one moment.

    The plan must know that few rows are wanted: a number that is not smaller than the limit
    stands in the text.
    """
    return _page(_HELD if held else _ANY, max(_FEWEST, 1 << limit.bit_length()))


@cache
def _page(rows: str, most: int) -> Statement:
    text = (
        f"SELECT * FROM (SELECT ROW({_COLUMNS}, octet_length(t.result)::bigint, {_NOW}, "  # noqa: S608 - only constants
        f"t.place - t.first + 1) FROM ({_walk(rows, WINDOW)}) t WHERE {_LIVING} AND {_NEW_ENOUGH} "
        "AND NOT (t.created = $1 AND t.place <= $4::bigint) "
        "AND ($5 OR t.scope = $6) AND ($7::text IS NULL OR t.status = $7) "
        f"AND ($8 = '' OR t.label = $8) AND starts_with(t.key, $9) LIMIT {most}) t "
        "LIMIT $10::bigint"
    )
    return statement(text, 10)


def _end(rows: str) -> Statement:
    """The last row that a page walks over and the one that follows, if they are new enough."""
    text = (
        f"SELECT ROW(t.created, t.place - t.first + 1) FROM ({_walk(rows, WINDOW + 1)}) t "  # noqa: S608 - only constants
        f"WHERE t.place >= {WINDOW} AND {_NEW_ENOUGH}"
    )
    return statement(text, 3)


END: Final = _end(_ANY)
END_OF_HELD: Final = _end(_HELD)
INDEXES: Final = ("oncekey_records_created", "oncekey_records_held")
INDEXED: Final = statement(
    "SELECT count(*) FROM pg_index WHERE indrelid = 'oncekey_records'::regclass AND indisvalid "  # noqa: S608 - only constants
    f"AND indexrelid IN (to_regclass('{INDEXES[0]}'), to_regclass('{INDEXES[1]}'))",
    0,
)
CLOCK: Final = statement("SELECT oncekey_now_v1()", 0)
SIZE: Final = statement(
    "SELECT ROW(pg_relation_size(oid) / current_setting('block_size')::bigint, "
    "relpages::bigint, reltuples::bigint, oncekey_now_v1()) "
    "FROM pg_class WHERE oid = 'oncekey_records'::regclass",
    0,
)
"""The pages of the table now; its pages and rows when it was last vacuumed; the time."""
_GROUPED: Final = f"SELECT ROW(t.status, {_LIVING}, count(*))"
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
    f"{_GROUPED} FROM (SELECT * FROM oncekey_records t WHERE {_HELD} LIMIT {COUNTED + 1}) t "  # noqa: S608 - only constants
    f"GROUP BY t.status, {_LIVING}",
    0,
)
DUE: Final = statement(
    "SELECT count(*) FROM (SELECT FROM oncekey_records t WHERE t.due > 0 "
    "AND t.due <= (SELECT oncekey_now_v1() - $1::bigint) LIMIT 1000000) t",
    1,
)
