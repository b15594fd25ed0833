"""The user's open transaction, and proof that it leads to the database of a table."""

from __future__ import annotations

from typing import Any

from oncekey.compat import call_blocking_async
from oncekey.errors import ConfigurationError
from oncekey.messages import schema
from oncekey.messages.connections.base import Connections
from oncekey.messages.connections.sqlite import SQLiteConnections
from oncekey.messages.drivers.choice import connected_async
from oncekey.messages.drivers.detection import (
    another_database,
    made_too_late,
    refused,
    refused_by_database,
)
from oncekey.messages.errors import table_is_missing, table_is_too_young
from oncekey.messages.statements import SQLITE, Values
from oncekey.stores.sqlite.schema import statements_of


class AsyncOpenTransaction:
    """A transaction of the user, which the inbox and the outbox write into."""

    def __init__(self, own: Connections, given: Any) -> None:
        """Check the connection.

        Raise ConfigurationError if it is outside a transaction or for the other kind of code.
        """
        self._own = own
        self._given = given
        self.identity = ""
        """The identity of the database with the table, after `begin`."""
        self.connection = connected_async(given, own.schema)
        refused(self.connection.inside(), given)

    async def begin(self) -> None:
        """Make sure that the table exists, and that the connection is to a database of its kind."""
        own = self._own
        await self.connection.begin()
        if self.connection.dialect is not own.dialect:
            raise self.elsewhere()
        self.identity = own.known or await call_blocking_async(own.found) or await self._migrate()

    async def _migrate(self) -> str:
        """Make the schema in this transaction. Return the identity of the SQLite file.

        A connection of our own cannot make it while the transaction has the file locked.
        """
        own, connection, table = self._own, self.connection, self._own.schema
        ((file,),) = await connection.run(schema.FILE, {})
        if not file or not isinstance(own, SQLiteConnections) or not own.path.samefile(file):
            raise self.elsewhere()
        (found,) = await connection.run(table.find(SQLITE), {})
        read = await connection.run(table.read, {}) if found[0] else []
        for script in table.missing(found, read, SQLITE):
            for statement in statements_of(script):
                await connection.run(statement, {})
        await connection.run(table.bump(SQLITE), {})
        return str((await connection.run(table.read, {}))[0][2])

    async def run(self, statement: str, values: Values, run: Any = None) -> list[Any]:
        """Run the statement, as the connection does or with another method of it.

        Return its rows. Raise ConfigurationError if the database says that there is no transaction,
        or no such table, and StoreError if the table was made after the transaction began to read.
        """
        try:
            found: list[Any] = await (run or self.connection.run)(statement, values)
        except Exception as error:
            refused_by_database(error, self._given)
            if table_is_missing(error):
                raise self.elsewhere() from error
            if table_is_too_young(error):
                raise made_too_late(self._own.schema) from error
            raise
        return found

    def elsewhere(self) -> ConfigurationError:
        """Return the error for a connection that leads to another database than the table's."""
        return another_database(self._given, self._own.schema)
