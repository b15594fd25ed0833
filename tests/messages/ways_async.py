"""The same ways for coroutines."""

from contextlib import asynccontextmanager

import aiosqlite
import asyncpg  # type: ignore[import-untyped]  # brings no types
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


class AlchemyAsyncpg(Alchemy):
    """The same with asyncpg below it, and its own URL for the inbox."""

    def connect(self, url):
        super().connect(url)
        self.inbox_url = url.replace("postgresql:", "postgresql+asyncpg:")

    @asynccontextmanager
    async def _engine(self):
        engine = create_async_engine(self.inbox_url)
        try:
            yield engine
        finally:
            await engine.dispose()


class Asyncpg(Way):
    @asynccontextmanager
    async def transaction(self):
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    async def write(self, connection, number):
        await connection.execute(WRITE.format(number))


class AsyncpgPool(Asyncpg):
    @asynccontextmanager
    async def transaction(self):
        async with (
            asyncpg.create_pool(self.url, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
            connection.transaction(),
        ):
            yield connection


class AlchemyCore(Alchemy):
    @asynccontextmanager
    async def transaction(self):
        async with self._engine() as engine, engine.connect() as connection, connection.begin():
            yield connection

    async def write(self, connection, number):
        await connection.execute(sa.text(WRITE.format(number)))


WAYS = {
    "psycopg": (Psycopg, "postgres"),
    "asyncpg": (Asyncpg, "postgres"),
    "asyncpg pool": (AsyncpgPool, "postgres"),
    "sqlalchemy": (Alchemy, "postgres"),
    "sqlalchemy on asyncpg": (AlchemyAsyncpg, "postgres"),
    "sqlalchemy core": (AlchemyCore, "postgres"),
    "aiosqlite": (PlainSQLite, "sqlite"),
    "sqlalchemy on sqlite": (Alchemy, "sqlite"),
}
