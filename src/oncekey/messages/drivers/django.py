"""The driver for connections of Django, which has none for coroutines."""

from __future__ import annotations

from typing import Any

from oncekey.messages.drivers.base import OneByOne
from oncekey.messages.drivers.detection import dialect_named, pyformat
from oncekey.messages.errors import TransactionOverError
from oncekey.messages.statements import MYSQL, Values


class _UndoneError(Exception):
    """Passed to Django's atomic block, so that it rolls back."""


class Django(OneByOne):
    """A connection of Django: `django.db.connection`, or one of `connections`."""

    def __init__(self, connection: Any) -> None:
        """Take the connection. Its alias tells Django which one it is."""
        self._connection = connection
        self._atomic: Any = None
        self._released = False
        self.dialect = dialect_named(connection.vendor)

    def inside(self) -> bool:
        """Return whether the connection is inside transaction.atomic()."""
        return bool(self._connection.in_atomic_block)

    def begin(self) -> None:
        """Do nothing: a connection that is inside has begun."""

    def savepoint(self) -> None:
        """Set the savepoint through Django.

        Django then knows the state after a failed statement.
        """
        from django.db import transaction  # type: ignore[import-untyped]  # it brings no types

        self._atomic = transaction.atomic(using=self._connection.alias)
        self._atomic.__enter__()

    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        found: list[Any] = []
        with self._connection.cursor() as cursor:
            for step in self.dialect.steps(statement):
                cursor.execute(pyformat(step), values)
                if not cursor.description:
                    found = self.dialect.rows(cursor.rowcount)
                elif found := list(cursor.fetchall()):
                    break
        return found

    def release(self) -> None:
        """Release the savepoint. Raise TransactionOverError if it is gone."""
        self._atomic.__exit__(None, None, None)
        self._released = True

    def roll_back(self) -> None:
        """Roll back to the savepoint and release it.

        Without the savepoint let Django roll back the transaction, or a part of the block would be
        kept. Raise TransactionOverError if MySQL has no such savepoint any more.
        """
        if self._released:
            self._connection.set_rollback(True)
            return
        self._atomic.__exit__(_UndoneError, _UndoneError(), None)
        if self.dialect is MYSQL and self._connection.needs_rollback:  # all that Django tells
            msg = "the savepoint is gone, and the transaction with it"
            raise TransactionOverError(msg)
