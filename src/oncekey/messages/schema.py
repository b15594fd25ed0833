"""The schema of the inbox: its migrations, and the releases that may use it.

A migration only adds (expand). Releases that know fewer migrations than the table has seen go on
working, until one removes something (contract) and says so in `oldest`.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from oncekey.errors import ConfigurationError
from oncekey.messages.statements import Dialect

READ: Final = "SELECT version, oldest, identity FROM processed_messages_schema"
BUMP: Final = "UPDATE processed_messages_schema SET version = {0} WHERE version < {0}"
LOCK: Final = "SELECT pg_advisory_xact_lock(7886477261459485030)"
"""The lock for migrations. Of several processes one migrates, and the others wait for it."""

FILE: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"
"""The query for the file that a SQLite connection has open."""

FIND: Final = {
    # Not to_regclass: a session that found nothing remembers that until its transaction is over.
    "postgres": "SELECT COALESCE(bool_or(relname = 'processed_messages_schema'), false), "
    "COALESCE(bool_or(relname = 'processed_messages'), false) FROM pg_class "
    "WHERE relname IN ('processed_messages', 'processed_messages_schema') "
    "AND pg_table_is_visible(oid)",
    "sqlite": "SELECT max(name = 'processed_messages_schema'), max(name = 'processed_messages') "
    "FROM sqlite_master",
}


@cache
def migrations(dialect: Dialect) -> tuple[str, ...]:
    """Return all steps from an empty database to the schema of this release."""
    folder = resources.files("oncekey.messages") / "sql" / dialect.name
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text() for name in names)


def missing(
    found: tuple[object, object], read: list[tuple[int, int, str]], known: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the steps that the database has not seen yet.

    `found` says whether our version table and `processed_messages` exist; `read` is the result of
    READ. Raise ConfigurationError if the table is not ours, or needs a newer release.
    """
    if not found[0]:
        if found[1]:
            msg = (
                "the database has a table processed_messages that the inbox did not make; rename "
                "it and copy its rows afterwards, or give the inbox a schema or file of its own"
            )
            raise ConfigurationError(msg)
        return known
    version, oldest, _ = read[0]
    if oldest > len(known):
        msg = (
            f"processed_messages was brought to version {version} by a newer release and needs "
            f"one that knows {oldest}, this one knows {len(known)}; upgrade oncekey here as well"
        )
        raise ConfigurationError(msg)
    return known[version:]
