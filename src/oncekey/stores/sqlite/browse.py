"""List and count the records of a SQLite file.

Rowids have the order in which the records were created. A page goes down a limited number of
rowids. If there are too many records to count, their number is estimated from random rowids.
"""

from __future__ import annotations

from random import choices
from typing import Any, Final

from msgspec.structs import replace

from oncekey.core.record import FORMAT, Record
from oncekey.stores.browse import (
    NewestFirst,
    RecordCounts,
    RecordPage,
    RecordQuery,
    StoreSize,
    at_least,
    bad_cursor,
    newest_first_from,
    per_status,
    whole_number,
)
from oncekey.stores.sqlite import statements as file
from oncekey.stores.sqlite.store import SQLiteStore

DAY: Final = 86_400_000_000
COUNTED: Final = 20_000
"""The largest range of rowids whose records are counted one by one."""
_COLUMNS: Final = file.COLUMNS.replace("result,", "NULL,")

HIGHEST: Final = "SELECT max(rowid) FROM oncekey_records WHERE rowid < ?"
ENDS: Final = (
    "SELECT (SELECT min(rowid) FROM oncekey_records), (SELECT max(rowid) FROM oncekey_records)"
)
AT: Final = (
    "SELECT rowid, created FROM oncekey_records WHERE rowid <= ? ORDER BY rowid DESC LIMIT 1"
)
_LIVING: Final = "(expires = 0 OR expires > ?)"
PAGE: Final = (
    f"SELECT {_COLUMNS}, length(result), rowid FROM oncekey_records "  # noqa: S608 - only constants
    f"WHERE rowid <= ? AND rowid > ? AND {_LIVING} "
)
COUNT: Final = (
    "SELECT status, count(*), sum(status = 'running' AND lease_end <= ?), min(updated) "  # noqa: S608 - only constants
    f"FROM oncekey_records WHERE {_LIVING}"
)


HELD_INDEX: Final = "oncekey_records_held"
"""The index of held records, the only ones that never expire. Counting them reads nothing else."""
MAKE_HELD_INDEX: Final = (
    f"CREATE INDEX IF NOT EXISTS {HELD_INDEX} ON oncekey_records (expires, status, updated) "
    "WHERE expires = 0"
)
DUE_INDEX: Final = "oncekey_records_due"
MAKE_DUE_INDEX: Final = (
    f"CREATE INDEX IF NOT EXISTS {DUE_INDEX} ON oncekey_records (due) WHERE due > 0"
)
HAS_HELD_INDEX: Final = f"SELECT 1 FROM sqlite_master WHERE name = '{HELD_INDEX}'"  # noqa: S608 - only constants
_BY_INDEX: Final = (
    f"FROM oncekey_records INDEXED BY {HELD_INDEX} WHERE expires = 0 AND status = 'held' "
)
HELD_PAGE: Final = (
    f"SELECT {_COLUMNS}, length(result), rowid {_BY_INDEX}AND (updated, rowid) < (?, ?) "
)
HELD_COUNT: Final = f"SELECT count(*), min(updated) {_BY_INDEX}"
DUE: Final = (
    f"SELECT count(*) FROM (SELECT 1 FROM oncekey_records WHERE {file.EXPIRED} LIMIT 1000000)"  # noqa: S608 - only constants
)


_WINDOW: Final = 2000
"""The number of rowids that one page covers."""
_RUNS: Final = 12
_RUN: Final = 10
"""The sample has _RUNS runs of _RUN neighbouring rowids, which lie in one page of the file."""
_NEWEST: Final = 400
"""The number of newest rowids that are counted one by one: running calls are among them."""
_UPDATED, _SIZE, _ROWID = 9, 22, 23


def list_records(store: SQLiteStore, ask: RecordQuery) -> RecordPage:
    """Return a page of records, newest first; of held ones, those first that were held last."""
    if ask.status == "held" and _indexed(store):
        return _page_of_held(store, ask)
    now = store.clock()
    start = _start(store, ask, now)
    if start is None:
        return RecordPage(records=[], sizes=[], after=None, newest_first=True, now=now)
    wish, values = _wish(ask, now)
    statement = f"{PAGE}{wish}ORDER BY rowid DESC LIMIT ?"
    rows = store.rows(statement, start, start - _WINDOW, now, *values, ask.limit + 1)
    told = rows[: ask.limit]
    more = len(rows) > len(told)
    after = told[-1][_ROWID] if more else _below(store, start - _WINDOW, ask, now)
    return _page(told, None if after is None else str(after), now)


def _page_of_held(store: SQLiteStore, ask: RecordQuery) -> RecordPage:
    now, here = store.clock(), newest_first_from(ask.after)
    wish, values = _wish(ask, now)
    statement = f"{HELD_PAGE}{wish}ORDER BY updated DESC, rowid DESC LIMIT ?"
    rows = store.rows(statement, *here, *values, ask.limit + 1)
    told = rows[: ask.limit]
    after = None
    if len(rows) > len(told):
        after = str(NewestFirst(told[-1][_UPDATED], told[-1][_ROWID]))  # a rowid tells them apart
    return _page(told, after, now)


def _page(rows: list[Any], after: str | None, now: int) -> RecordPage:
    return RecordPage(
        records=[_read(row) for row in rows],
        sizes=[row[_SIZE] for row in rows],
        after=after,
        newest_first=True,
        now=now,
    )


def count_records(store: SQLiteStore, *, exact: bool) -> RecordCounts:
    """Count all records if the range of rowids is small or `exact` is set, else estimate."""
    now = store.clock()
    lowest, highest = store.rows(ENDS)[0]
    held = _held(store)
    if exact or highest is None or highest - lowest < COUNTED:
        seen, over, since = _grouped(store, "", now)
        held = (seen.get("held", 0), since)
        return _counted(per_status(seen), over, sum(seen.values()), now, held, exact=True)
    starts = choices(range(lowest, highest - _RUN + 2), k=_RUNS)  # noqa: S311 - no secrets
    numbers = {start + number for start in starts for number in range(_RUN)}
    marks = ", ".join("?" * len(numbers))
    share = (highest - lowest + 1) / len(numbers)
    probed, over, _ = _grouped(store, f"AND rowid IN ({marks})", now, *numbers)
    newest, more, _ = _grouped(store, "AND rowid > ?", now, highest - _NEWEST)
    by_status = at_least(per_status(probed, share), newest)
    total = sum(by_status.values())
    if held is not None:
        by_status["held"] = held[0]
    looked_at = sum(probed.values()) + sum(newest.values())
    over = max(round(over * share), more)
    told = _counted(by_status, over, looked_at, now, held, exact=False)
    told.total = max(total, told.total)
    return told


_BYTES: Final = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"


def measure(store: SQLiteStore, total: int) -> StoreSize:  # noqa: ARG001 - the file tells it
    """Return the size of the file, and how many rowids are younger than a day."""
    (size,) = store.rows(_BYTES)[0]
    _, highest = store.rows(ENDS)[0]
    old = None if highest is None else _older(store, highest, store.clock() - DAY)
    lowest = 0 if highest is None else store.rows(ENDS)[0][0]
    new = 0 if highest is None else highest - (lowest - 1 if old is None else old)
    return StoreSize(bytes=size, exact=True, new=new)


def count_due(store: SQLiteStore, grace: int) -> int:
    """Return the number of records that expired `grace` microseconds ago, at most a million."""
    then = store.clock() - grace
    count: int = store.rows(DUE, then, then)[0][0]
    return count


def read_newer(store: SQLiteStore, scope: str | None, key: str) -> Record | None:
    """Return the record, as far as this release understands it, or None."""
    rows = store.rows(file.SELECT_ONE, scope or "", key)
    record = _read(rows[0]) if rows else None
    return None if record is None or 0 < record.expires <= store.clock() else record


def _held(store: SQLiteStore) -> tuple[int, int | None] | None:
    """Return how many are held and since when, or None if somebody has dropped the index."""
    if not _indexed(store):
        return None
    count, since = store.rows(HELD_COUNT)[0]
    return count, since


def _grouped(
    store: SQLiteStore, wish: str, now: int, *values: int
) -> tuple[dict[str, int], int, int | None]:
    """Return the counts by status, how many have lapsed, and since when the oldest one is held."""
    rows = store.rows(f"{COUNT} {wish} GROUP BY status", now, now, *values)
    since = next((updated for status, _, _, updated in rows if status == "held"), None)
    return {row[0]: row[1] for row in rows}, sum(row[2] for row in rows), since


def _counted(
    by_status: dict[str, int],
    over: int,
    looked_at: int,
    now: int,
    held: tuple[int, int | None] | None,
    *,
    exact: bool,
) -> RecordCounts:
    return RecordCounts(
        total=sum(by_status.values()),
        by_status=by_status,
        lapsed=over,
        exact=exact,
        held_exact=held is not None,
        held_since=None if held is None else held[1],
        looked_at=looked_at,
        now=now,
    )


def _start(store: SQLiteStore, ask: RecordQuery, now: int) -> int | None:
    """Return the highest rowid of the page, or None if there are no more."""
    try:
        below = 2**63 - 1 if ask.after is None else whole_number(ask.after)
    except ValueError:
        raise bad_cursor(ask.after) from None
    highest: int | None = store.rows(HIGHEST, below)[0][0]
    if highest is None or not ask.older:
        return highest
    return _older(store, highest, now - ask.older)


def _older(store: SQLiteStore, highest: int, created: int) -> int | None:
    """Return the highest rowid, at most `highest`, of a record created by then: binary search."""
    ((lowest, _),) = store.rows(ENDS)
    low, high = lowest - 1, highest
    while low < high:
        middle = (low + high + 1) // 2
        found = store.rows(AT, middle)
        if found and found[0][1] > created:
            high = found[0][0] - 1
        else:
            low = middle
    return low if low >= lowest else None


def _below(store: SQLiteStore, floor: int, ask: RecordQuery, now: int) -> int | None:
    """Return the cursor of the next page, or None if no record below can match."""
    found = store.rows(AT, floor)
    if not found or (ask.newer and found[0][1] < now - ask.newer):
        return None
    number: int = found[0][0] + 1
    return number


def _wish(ask: RecordQuery, now: int) -> tuple[str, list[object]]:
    """Return the conditions of the query as SQL, and their values."""
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


def _read(row: Any) -> Record:
    """Return the record of a row, also if a newer release wrote it."""
    if row[20] <= FORMAT:
        return file.from_row(row)
    return replace(file.from_row((*row[:20], FORMAT, row[21])), version=row[20])


def _indexed(store: SQLiteStore) -> bool:
    return bool(store.rows(HAS_HELD_INDEX))


def where(store: SQLiteStore) -> str:
    """Return the path of the file."""
    return str(store.file)
