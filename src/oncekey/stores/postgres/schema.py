"""The migrations of the PostgreSQL store, and which releases may use the result.

Until the first release there is one migration, which is edited in place. From then on a migration
only adds (expand). Releases that know fewer migrations than the database has go on working, until a
migration removes something (contract) and says in `oncekey_schema.oldest` how many migrations a
release must know from then on.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from oncekey.errors import ConfigurationError

OLDEST_SERVER: Final = 14

# Not to_regclass: a session that did not find the table once never finds it.
FIND: Final = (
    b"SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'oncekey_schema' AND relkind = 'r' "
    b"AND pg_table_is_visible(oid))"
)
FOUND: Final = [b"t"]
READ: Final = b"SELECT version || ' ' || oldest FROM oncekey_schema"
BEGIN: Final = (
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(7886477261459485029)"
)
"""Several processes may migrate at once: one does it, the others wait and find it done."""


@cache
def migrations() -> tuple[bytes, ...]:
    """Return all steps from an empty database to the schema of this release."""
    folder = resources.files("oncekey.stores.postgres") / "sql"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_bytes() for name in names)


def missing(read: list[bytes], known: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the migrations that the database does not have yet.

    `read` is the answer to READ, or empty if there is no schema. Raise ConfigurationError if the
    database needs a newer release.
    """
    version, oldest = map(int, read[0].split()) if read else (0, 0)
    if oldest > len(known):
        msg = (
            f"the PostgreSQL schema was brought to version {version} by a newer release and needs "
            f"one that knows {oldest}, this one knows {len(known)}; upgrade oncekey here as well"
        )
        raise ConfigurationError(msg)
    return known[version:]


def check_server(version: int, where: str) -> None:
    """Raise ConfigurationError if the server is too old."""
    if version < OLDEST_SERVER * 10_000:
        msg = (
            f"PostgreSQL at {where} is version {version // 10_000}, and oncekey needs "
            f"{OLDEST_SERVER} or newer; upgrade the server"
        )
        raise ConfigurationError(msg)
