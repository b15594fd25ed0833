"""The schema of the PostgreSQL store: migrations, and which release may use what they made.

A migration only adds (expand). Releases that know fewer migrations than the database has seen go
on working, until one takes something away (contract) and says in `oncekey_schema.oldest` how many
a release must know from then on.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from oncekey.errors import ConfigurationError

OLDEST_SERVER: Final = 14

FIND: Final = "SELECT to_regclass('oncekey_schema') IS NOT NULL"
READ: Final = "SELECT version, oldest FROM oncekey_schema"
LOCK: Final = "SELECT pg_advisory_xact_lock(7886477261459485029)"
"""Several processes may migrate at once: one does it, the others wait and find it done."""


@cache
def migrations() -> tuple[bytes, ...]:
    """Every step from an empty database to the schema of this release."""
    folder = resources.files("oncekey.stores") / "sql" / "postgres"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_bytes() for name in names)


def missing(version: int, oldest: int, known: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The steps that the database has yet to see; refused when it has moved too far on."""
    if oldest > len(known):
        msg = (
            f"the PostgreSQL schema was brought to version {version} by a newer release and needs "
            f"one that knows {oldest}, this one knows {len(known)}; upgrade oncekey here as well"
        )
        raise ConfigurationError(msg)
    return known[version:]


def check_server(version: int, where: str) -> None:
    """Refused when the server is older than what the statements need."""
    if version < OLDEST_SERVER * 10_000:
        msg = (
            f"PostgreSQL at {where} is version {version // 10_000}, and oncekey needs "
            f"{OLDEST_SERVER} or newer; upgrade the server"
        )
        raise ConfigurationError(msg)
