"""The driver PyMySQL."""

# Generated from mysql_async.py by "make generate": do not edit.

from __future__ import annotations

from itertools import count
from typing import Any, Final

from pymysql.cursors import Cursor

from oncekey.messages.drivers.base import OneByOne
from oncekey.messages.drivers.detection import inside_mysql, pyformat
from oncekey.messages.statements import MYSQL, RELEASE, ROLL_BACK, SAVEPOINT, Values

_names: Final = count()
"""MySQL drops a savepoint when another one gets its name, so that each block has its own."""


class PyMySQL(OneByOne):
    """A Connection of PyMySQL."""

    dialect = MYSQL

    def __init__(self, connection: Any) -> None:
        """Take the connection."""
        self._connection = connection
        self._name = f"_{next(_names)}"
        self._released = False

    def inside(self) -> bool:
        """Return whether BEGIN was sent, or the connection is without autocommit."""
        return inside_mysql(self._connection)

    def begin(self) -> None:
        """Do nothing: a connection that is inside has begun, or begins with the next statement."""

    def savepoint(self) -> None:
        """Set the savepoint."""
        self._say(f"{SAVEPOINT}{self._name}")

    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows, one for each changed row if it has none."""
        found: list[Any] = []
        with self._connection.cursor(Cursor) as cursor:
            for step in MYSQL.steps(statement):
                cursor.execute(pyformat(step), values or None)
                if not cursor.description:
                    found = MYSQL.rows(cursor.rowcount)
                elif found := [*cursor.fetchall()]:
                    break
        return found

    def release(self) -> None:
        """Release the savepoint."""
        self._say(f"{RELEASE}{self._name}")
        self._released = True

    def roll_back(self) -> None:
        """Roll back to the savepoint and release it.

        Without the savepoint roll back the transaction, or a part of the block would be kept.
        """
        if self._released:
            self._connection.rollback()
            return
        self._say(f"{ROLL_BACK}{self._name}")
        self._say(f"{RELEASE}{self._name}")

    def _say(self, statement: str) -> None:
        with self._connection.cursor(Cursor) as cursor:
            cursor.execute(statement)
