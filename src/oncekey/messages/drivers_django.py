"""Connections of Django, which has none for coroutines."""

from __future__ import annotations

from typing import Any

from oncekey.messages.driver import dialect_named, pyformat
from oncekey.messages.drivers import OneByOne
from oncekey.messages.statements import Values


class _UndoneError(Exception):
    """What Django is told so that it rolls back."""


class Django(OneByOne):
    """A connection of Django: `django.db.connection`, or one of `connections`."""

    def __init__(self, connection: Any) -> None:
        """The alias tells which one it is."""
        self._connection = connection
        self._atomic: Any = None
        self.dialect = dialect_named(connection.vendor)

    def inside(self) -> bool:
        """Whether it is inside transaction.atomic()."""
        return bool(self._connection.in_atomic_block)

    def begin(self) -> None:
        """It has, if it is inside."""

    def savepoint(self) -> None:
        """Set by Django, which then knows what a failed statement leaves behind."""
        from django.db import transaction  # type: ignore[import-untyped]  # it brings no types

        self._atomic = transaction.atomic(using=self._connection.alias)
        self._atomic.__enter__()

    def run(self, statement: str, values: Values) -> list[Any]:
        """The rows."""
        with self._connection.cursor() as cursor:
            cursor.execute(pyformat(statement), values)
            return list(cursor.fetchall()) if cursor.description else []

    def release(self) -> None:
        """Released."""
        self._atomic.__exit__(None, None, None)

    def roll_back(self) -> None:
        """Rolled back, and gone."""
        self._atomic.__exit__(_UndoneError, _UndoneError(), None)
