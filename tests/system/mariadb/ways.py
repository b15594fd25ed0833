"""Ways to reach MariaDB: each opens transactions of one driver and writes orders in them."""

from contextlib import asynccontextmanager, closing, contextmanager
from urllib.parse import urlsplit

import asyncmy
import pymysql
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.messages import ways
from tests.messages.ways import WRITE, Order

pymysql.install_as_MySQLdb()  # what Django calls for, and what needs a compiler

FIRST = "SELECT number FROM orders"
"""A plain read, as business code begins with: it gives the transaction its snapshot."""


def settings(url):
    """Return what the drivers take for the URL."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "database": parts.path.removeprefix("/"),
    }


def text(value):
    return value.decode() if isinstance(value, bytes) else value


class Way(ways.Way):
    """One driver of MariaDB."""

    def __init__(self, url):
        """Connect to a database that has the tables."""
        self.connect(url)

    # Not innodb_trx, which is not read anew while somebody reads it ten times a second.
    WAITING = (
        "SELECT CAST(variable_value AS INTEGER) FROM information_schema.global_status "
        "WHERE variable_name = 'Innodb_row_lock_current_waits'"
    )

    def execute(self, statement):
        with (
            closing(pymysql.connect(**settings(self.url), autocommit=True)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall())

    def marks(self):
        return [tuple(map(text, row)) for row in super().marks()]


class PyMySQL(Way):
    @contextmanager
    def transaction(self):
        with closing(pymysql.connect(**settings(self.url), autocommit=True)) as connection:
            connection.begin()
            try:
                self.write(connection, "", FIRST)
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def write(self, connection, number, statement=WRITE):
        with connection.cursor() as cursor:
            cursor.execute(statement.format(number))

    def fail(self, connection):
        self.write(connection, 1, "INSERT INTO nowhere VALUES ({})")

    def lock_timeout(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
            return cursor.fetchone()[0]


class Alchemy(Way, ways.Alchemy):
    def connect(self, url):
        self.url = url
        self.engine = sa.create_engine(url.replace("mysql:", "mysql+pymysql:"))

    @contextmanager
    def transaction(self):
        with ways.Alchemy.transaction(self) as session:
            session.execute(sa.text(FIRST))
            yield session

    def lock_timeout(self, connection):
        return connection.execute(sa.text("SELECT @@innodb_lock_wait_timeout")).scalar_one()


class AlchemyCore(Alchemy):
    @contextmanager
    def transaction(self):
        with self.engine.connect() as connection, connection.begin():
            connection.execute(sa.text(FIRST))
            yield connection

    def write(self, connection, number):
        connection.execute(sa.text(WRITE.format(number)))


class Django(Way, ways.Django):
    @contextmanager
    def transaction(self):
        with ways.Django.transaction(self) as connection:
            with connection.cursor() as cursor:
                cursor.execute(FIRST)
            yield connection

    def lock_timeout(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@innodb_lock_wait_timeout")
            return cursor.fetchone()[0]

    def _settings(self):
        told = settings(self.url)
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": told["database"],
            "USER": told["user"],
            "PASSWORD": told["password"],
            "HOST": told["host"],
            "PORT": str(told["port"]),
            # Otherwise Django chooses READ COMMITTED, under which a snapshot lasts for a statement.
            "OPTIONS": {"isolation_level": "repeatable read"},
        }


WAYS = {
    "pymysql": PyMySQL,
    "sqlalchemy": Alchemy,
    "sqlalchemy core": AlchemyCore,
    "django": Django,
}


class Asyncmy(Way):
    @asynccontextmanager
    async def transaction(self):
        connection = await asyncmy.connect(**settings(self.url), autocommit=True)
        try:
            await connection.begin()
            try:
                await self.write(connection, "", FIRST)
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()
        finally:
            await connection.ensure_closed()

    async def write(self, connection, number, statement=WRITE):
        async with connection.cursor() as cursor:
            await cursor.execute(statement.format(number))


class AsyncAlchemy(Way):
    """An AsyncSession on asyncmy, and its own URL for the inbox."""

    def connect(self, url):
        self.url = url
        self.inbox_url = url.replace("mysql:", "mysql+asyncmy:") + "?charset=utf8mb4"

    @asynccontextmanager
    async def _engine(self):
        engine = create_async_engine(self.inbox_url)
        try:
            yield engine
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def transaction(self):
        async with self._engine() as engine, AsyncSession(engine) as session, session.begin():
            await session.execute(sa.text(FIRST))
            yield session

    async def write(self, session, number):
        session.add(Order(number=str(number)))


class AsyncAlchemyCore(AsyncAlchemy):
    @asynccontextmanager
    async def transaction(self):
        async with self._engine() as engine, engine.connect() as connection, connection.begin():
            await connection.execute(sa.text(FIRST))
            yield connection

    async def write(self, connection, number):
        await connection.execute(sa.text(WRITE.format(number)))


WAYS_ASYNC = {
    "asyncmy": Asyncmy,
    "sqlalchemy": AsyncAlchemy,
    "sqlalchemy core": AsyncAlchemyCore,
}
