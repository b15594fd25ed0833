"""The statements that look at a SQLite file."""

from __future__ import annotations

from typing import Final

from oncekey.stores.sqlite import statements as file

COUNTED: Final = 20_000
"""Records are counted one by one where no more numbers than this were given out."""
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
COUNT: Final = f"SELECT status, count(*) FROM oncekey_records WHERE {_LIVING}"  # noqa: S608 - only constants


HELD_INDEX: Final = "oncekey_records_held"
"""Only held records never expire. `oncekey migrate` makes the index; nothing else needs it."""
MAKE_HELD_INDEX: Final = (
    f"CREATE INDEX IF NOT EXISTS {HELD_INDEX} ON oncekey_records (expires) WHERE expires = 0"
)
HAS_HELD_INDEX: Final = f"SELECT 1 FROM sqlite_master WHERE name = '{HELD_INDEX}'"  # noqa: S608 - only constants
_BY_INDEX: Final = f"FROM oncekey_records INDEXED BY {HELD_INDEX} WHERE expires = 0 "
HELD_PAGE: Final = f"SELECT {_COLUMNS}, length(result), rowid {_BY_INDEX}AND rowid <= ? "
HELD_COUNT: Final = (
    f"SELECT count(*) FROM (SELECT 1 {_BY_INDEX}AND status = 'held' LIMIT {COUNTED + 1})"  # noqa: S608 - only constants
)
DUE: Final = (
    f"SELECT count(*) FROM (SELECT 1 FROM oncekey_records WHERE {file.EXPIRED} LIMIT 1000000)"  # noqa: S608 - only constants
)
