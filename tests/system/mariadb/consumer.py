"""A consumer on MariaDB in a process of its own, as `tests.messages.consumer` is on PostgreSQL."""

from contextlib import asynccontextmanager, contextmanager

import asyncmy
import pymysql
from django.db import transaction  # type: ignore[import-untyped]  # Django brings no types
from sqlalchemy.ext.asyncio import create_async_engine

from tests.messages.consumer import consume_with
from tests.system.mariadb import ways
from tests.system.mariadb.ways import FIRST, settings


class SteadyPyMySQL(ways.PyMySQL):
    """One connection for all messages."""

    def connect(self, url):
        super().connect(url)
        self._connection = pymysql.connect(**settings(url), autocommit=True)

    @contextmanager
    def transaction(self):
        self._connection.begin()
        try:
            self.write(self._connection, "", FIRST)
            yield self._connection
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()


class SteadyDjango(ways.Django):
    """As Django has it: one connection for the thread."""

    def connect(self, url):
        super().connect(url)
        self._opened = self.opened()
        self._connection = self._opened.__enter__()

    @contextmanager
    def transaction(self):
        with transaction.atomic(using=self._connection.alias):
            yield self._connection


class SteadyAsyncmy(ways.Asyncmy):
    """One connection for all messages."""

    _connection = None

    @asynccontextmanager
    async def transaction(self):
        if self._connection is None:
            self._connection = await asyncmy.connect(**settings(self.url), autocommit=True)
        await self._connection.begin()
        try:
            yield self._connection
        except BaseException:
            await self._connection.rollback()
            raise
        await self._connection.commit()


class SteadyAsyncAlchemy(ways.AsyncAlchemyCore):
    """One engine for all messages."""

    _one = None

    @asynccontextmanager
    async def _engine(self):
        self._one = self._one or create_async_engine(self.inbox_url)
        yield self._one


KINDS = {
    "pymysql": SteadyPyMySQL,
    "sqlalchemy": ways.AlchemyCore,
    "django": SteadyDjango,
    "asyncmy": SteadyAsyncmy,
    "sqlalchemy with asyncmy": SteadyAsyncAlchemy,
}


def consume(pipe, name, mode, url):
    """Until there is no more; what another consumer is at is put back."""
    consume_with(KINDS[name], pipe, mode, url)
