"""The migrations of the MySQL store, and what a server must be like to be used.

MySQL commits each DDL statement by itself, so that a migration is not atomic: a lock of the server
lets one process migrate at a time, each step may be repeated, and the version is written last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from oncekey.errors import ConfigurationError

SESSION: Final = (
    "SET SESSION time_zone = '+00:00', autocommit = 1, completion_type = 0, sql_notes = 0",
    "SET SESSION innodb_lock_wait_timeout = 4, group_concat_max_len = 65536",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
"""What each session of ours is told. Procedures keep the `sql_mode` that they were made under."""

LENT: Final = (
    "SET STATEMENT time_zone = IF(@@in_transaction, 'inside of a transaction', '+00:00'), "
    "innodb_lock_wait_timeout = 4, group_concat_max_len = 65536 FOR "
)
"""What stands before each statement on a connection that the application uses, too.

MariaDB gives the session its own settings back, whatever becomes of the statement. Inside of a
transaction there is no such time zone, so that nothing runs there.
"""

SERVER: Final = (
    "SELECT VERSION(), CONCAT(@@global.read_only), @@global.binlog_format, @@global.log_bin, "
    "SYSDATE(6), SLEEP(0.001), SYSDATE(6), @@session.max_allowed_packet"
)
TABLES: Final = (
    "SELECT table_name, engine FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name LIKE 'oncekey\\_%'"
)
READ: Final = "SELECT version, oldest FROM oncekey_schema"
LOCK: Final = "SELECT GET_LOCK(LEFT(CONCAT('oncekey ', DATABASE()), 64), {seconds})"
UNLOCK: Final = "SELECT RELEASE_LOCK(LEFT(CONCAT('oncekey ', DATABASE()), 64))"

_PACKET: Final = 64
"""What a statement has around it in its packet is less than that."""
_OLDEST_MARIADB: Final = (10, 6)
_OLDEST_MYSQL: Final = (8, 0)
_OURS: Final = frozenset({"oncekey_records", "oncekey_audit", "oncekey_activity", "oncekey_schema"})


@cache
def migrations() -> tuple[tuple[str, ...], ...]:
    """Return the statements of all steps from an empty database to the schema of this release."""
    folder = resources.files("oncekey.stores.mysql") / "sql"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(_statements((folder / name).read_text()) for name in names)


def _statements(script: str) -> tuple[str, ...]:
    """Split a script as the client `mariadb` does after `DELIMITER //`."""
    body = script.partition("DELIMITER //\n")[2]
    return tuple(filter(None, map(str.strip, re.split(r"^//$", body, flags=re.MULTILINE))))


def missing(read: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the steps that bring the schema up to date.

    `read` has the row of READ, or is empty if there is no schema. Raise ConfigurationError if the
    database needs a newer release.
    """
    version, oldest = read[0] if read else (0, 0)
    known = migrations()
    if oldest > len(known):
        msg = (
            f"the MySQL schema was brought to version {version} by a newer release and needs one "
            f"that knows {oldest}, this one knows {len(known)}; upgrade oncekey here as well"
        )
        raise ConfigurationError(msg)
    return known[version:]


def check_server(row: Sequence[Any], where: str, *, lent: bool = False) -> None:
    """Raise ConfigurationError if a promise would not hold on this server.

    `row` is from SERVER, and `lent` is a connection of an engine.
    """
    version, read_only, binlog, logged, before, _, after, _ = row
    server, oldest = (
        ("MariaDB", _OLDEST_MARIADB) if "mariadb" in version.lower() else ("MySQL", _OLDEST_MYSQL)
    )
    said = re.search(r"(\d+)\.(\d+)", version)
    if said is not None and (int(said[1]), int(said[2])) < oldest:
        msg = (
            f"{server} at {where} is version {version}, and oncekey needs "
            f"{'.'.join(map(str, oldest))} or newer; upgrade the server"
        )
    elif lent and server == "MySQL":
        msg = (
            f"the engine is one of MySQL at {where}, where a single statement cannot have settings "
            f"of its own, as it has in MariaDB; give Once the URL mysql://..."
        )
    elif read_only not in ("0", "OFF"):
        msg = f"the {server} server at {where} is read-only, as a replica is; name the primary"
    elif before == after:
        msg = (
            f"{server} at {where} runs with sysdate-is-now, under which no clock runs while a "
            f"statement waits; start it without that option"
        )
    elif binlog == "STATEMENT" and logged:
        msg = (
            f"{server} at {where} has binlog_format=STATEMENT, with which InnoDB refuses READ "
            f"COMMITTED; set it to ROW or MIXED"
        )
    else:
        return
    raise ConfigurationError(msg)


def largest_statement(row: Sequence[Any]) -> int:
    """Return how many bytes a statement may have. `row` is from SERVER."""
    limit: int = row[-1]
    return limit - _PACKET


def check_tables(rows: Sequence[Any], where: str) -> bool:
    """Return whether there is a schema. Raise ConfigurationError if a table is not in InnoDB."""
    found = {name: engine for name, engine in rows if name in _OURS}
    for name, engine in found.items():
        if engine != "InnoDB":
            msg = (
                f"the table {name} at {where} is in {engine}, which has no transactions; "
                f"ALTER TABLE {name} ENGINE = InnoDB"
            )
            raise ConfigurationError(msg)
    return "oncekey_schema" in found
