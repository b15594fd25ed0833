"""The same ways for coroutines."""

from contextlib import asynccontextmanager

import aiosqlite
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.messages.ways import WRITE, Order, Way


class Psycopg(Way):
    @asynccontextmanager
    async def transaction(self):
        async with (
            await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection,
            connection.transaction(),
        ):
            yield connection

    async def write(self, connection, number):
        await connection.execute(WRITE.format(number))


class PlainSQLite(Way):
    @asynccontextmanager
    async def transaction(self):
        async with aiosqlite.connect(self.path, isolation_level=None) as connection:
            await connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()

    async def write(self, connection, number):
        await connection.execute(WRITE.format(number))


class Alchemy(Way):
    """An AsyncSession, which flushes an object."""

    @asynccontextmanager
    async def _engine(self):
        url = self.url.replace("postgresql:", "postgresql+psycopg:")
        engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        try:
            yield engine
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def transaction(self):
        async with self._engine() as engine, AsyncSession(engine) as session, session.begin():
            yield session

    async def write(self, session, number):
        session.add(Order(number=str(number)))


class AlchemyCore(Alchemy):
    @asynccontextmanager
    async def transaction(self):
        async with self._engine() as engine, engine.connect() as connection, connection.begin():
            yield connection

    async def write(self, connection, number):
        await connection.execute(sa.text(WRITE.format(number)))


WAYS = {
    "psycopg": (Psycopg, "postgres"),
    "sqlalchemy": (Alchemy, "postgres"),
    "sqlalchemy core": (AlchemyCore, "postgres"),
    "aiosqlite": (PlainSQLite, "sqlite"),
    "sqlalchemy on sqlite": (Alchemy, "sqlite"),
}
