"""The schemas of the inbox and the outbox: migrations, and the releases that may use them.

A migration only adds (expand). Releases that know fewer migrations than the table has seen go on
working, until one removes something (contract) and says so in `oldest`.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from msgspec import Struct

from oncekey.errors import ConfigurationError
from oncekey.messages.statements import Dialect

FILE: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"
"""The query for the file that a SQLite connection has open."""

_FIND: Final = {
    # Not to_regclass: a session that found nothing remembers that until its transaction is over.
    "postgres": "SELECT COALESCE(bool_or(relname = '{0}_schema'), false), "
    "COALESCE(bool_or(relname = '{0}'), false) FROM pg_class "
    "WHERE relname IN ('{0}', '{0}_schema') AND pg_table_is_visible(oid)",
    "sqlite": "SELECT max(name = '{0}_schema'), max(name = '{0}') FROM sqlite_master",
    "mysql": "SELECT COALESCE(MAX(table_name = '{0}_schema'), 0), "
    "COALESCE(MAX(table_name = '{0}'), 0) FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name IN ('{0}', '{0}_schema')",
}


class Schema(Struct, frozen=True, kw_only=True):
    """A table that is made when it is needed. `<table>_schema` counts its migrations."""

    table: str
    owner: str
    """What has the table, in words: "inbox" or "outbox"."""
    package: str
    """The package with the migrations, in `sql/<dialect>/*.sql`."""
    lock: int
    """The lock for migrations. Of several processes one migrates, and the others wait for it."""

    @property
    def read(self) -> str:
        """The query for the version, the oldest release that may use it, and the identity."""
        return f"SELECT version, oldest, identity FROM {self.table}_schema"  # noqa: S608 - a name of ours

    @property
    def locked(self) -> str:
        """The statement of PostgreSQL that waits for other migrations."""
        return f"SELECT pg_advisory_xact_lock({self.lock})"

    def locked_by_name(self, seconds: int) -> str:
        """Return the statement of MySQL that waits for other migrations, and tells 1 then."""
        return f"SELECT GET_LOCK(LEFT(CONCAT('oncekey {self.owner} ', DATABASE()), 64), {seconds})"

    @property
    def engines(self) -> str:
        """The query for the storage engines of the tables in MySQL."""
        return (
            "SELECT table_name, engine FROM information_schema.tables "  # noqa: S608 - as above
            "WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' "
            f"AND table_name LIKE '{self.table}%'"
        )

    def bump(self, dialect: Dialect) -> str:
        """Return the statement that says that all migrations of this release are done."""
        known = len(self.migrations(dialect))
        return f"UPDATE {self.table}_schema SET version = {known} WHERE version < {known}"  # noqa: S608 - as above

    def find(self, dialect: Dialect) -> str:
        """Return the query for whether our version table and the table itself exist."""
        return _FIND[dialect.name].format(self.table)

    def migrations(self, dialect: Dialect) -> tuple[str, ...]:
        """Return all steps from an empty database to the schema of this release."""
        return _migrations(self.package, dialect)

    def missing(
        self, found: tuple[object, object], read: list[tuple[int, int, str]], dialect: Dialect
    ) -> tuple[str, ...]:
        """Return the steps that the database has not seen yet.

        `found` is the row of `find`; `read` is the result of `read`. Raise ConfigurationError if
        the table is not ours, or needs a newer release.
        """
        known = self.migrations(dialect)
        if not found[0]:
            if found[1]:
                msg = (
                    f"the database has a table {self.table} that the {self.owner} did not make; "
                    f"rename it and copy its rows afterwards, or give the {self.owner} a schema or "
                    f"file of its own"
                )
                raise ConfigurationError(msg)
            return known
        if not read:  # MySQL was killed in the middle: it commits each statement by itself
            return known
        version, oldest, identity = read[0]
        if oldest > len(known):
            msg = (
                f"{self.table} was brought to version {version} by a newer release and needs one "
                f"that knows {oldest}, this one knows {len(known)}; upgrade oncekey here as well"
            )
            raise ConfigurationError(msg)
        if not found[1]:  # dropped alone. Processes that run know the database by its identity
            quoted = identity.replace("'", "''")
            keep = f"UPDATE {self.table}_schema SET identity = '{quoted}';"  # noqa: S608 - a name of ours
            return (f"DROP TABLE {self.table}_schema;", *known, keep)
        return known[version:]


@cache
def _migrations(package: str, dialect: Dialect) -> tuple[str, ...]:
    folder = resources.files(package) / "sql" / dialect.name
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text() for name in names)


INBOX_SCHEMA: Final = Schema(
    table="processed_messages",
    owner="inbox",
    package="oncekey.messages",
    lock=7886477261459485030,
)
