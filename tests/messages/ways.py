"""Ways to reach a database: each opens transactions of one driver and writes orders in them."""

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import sqlalchemy as sa
from django.db import (  # type: ignore[import-untyped]  # Django brings no types
    connections,
    transaction,
)
from django.db.utils import ConnectionHandler  # type: ignore[import-untyped]  # as above
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.http import django_project  # noqa: F401 - configures Django

ORDERS = "CREATE TABLE orders (number VARCHAR(64) NOT NULL)"
MADE = "SELECT 1 FROM sqlite_master WHERE name = 'processed_messages'"
WRITE = "INSERT INTO orders VALUES ('{}')"


class Base(DeclarativeBase):
    """Of the tests."""


class Order(Base):
    """An order as SQLAlchemy maps it; the table has no key, so that doubles show."""

    __tablename__ = "orders"
    number: Mapped[str] = mapped_column(primary_key=True)


class Way:
    """One driver. `transaction()` gives what the inbox is given."""

    WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    """How many statements wait for a lock of somebody else."""

    def __init__(self, url: str) -> None:
        self.connect(url)
        self.execute(ORDERS)

    def connect(self, url: str) -> None:
        """The table is there already."""
        self.url = url

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """What a statement of somebody else answers, committed."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def orders(self) -> list[str]:
        """What was written and committed."""
        return sorted(str(row[0]) for row in self.execute("SELECT number FROM orders"))

    def fail(self, connection):
        """A statement that the database refuses."""
        connection.execute("INSERT INTO nowhere VALUES (1)")

    def marks(self) -> list[tuple[object, ...]]:
        """What the table says; nothing where it was never made."""
        if self.url.startswith("sqlite") and not self.execute(MADE):
            return []
        return self.execute(
            "SELECT consumer, idempotency_key, status, attempt, error FROM processed_messages "
            "ORDER BY consumer, idempotency_key"
        )

    def lock_timeout(self, connection):
        """What the connection has it set to."""
        return connection.execute("SHOW lock_timeout").fetchone()[0]

    def close(self) -> None:
        """Nothing is left open."""


class Psycopg(Way):
    @contextmanager
    def transaction(self):
        with psycopg.connect(self.url, autocommit=True) as connection, connection.transaction():
            yield connection

    def write(self, connection, number):
        connection.execute(WRITE.format(number))


class PlainSQLite(Way):
    @contextmanager
    def transaction(self):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection

    def write(self, connection, number):
        connection.execute(WRITE.format(number))


class Alchemy(Way):
    """A Session of SQLAlchemy, which flushes an object."""

    def connect(self, url: str) -> None:
        super().connect(url)
        self.engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    @contextmanager
    def transaction(self):
        with Session(self.engine) as session, session.begin():
            yield session

    def write(self, session, number):
        session.add(Order(number=str(number)))

    def fail(self, connection):
        connection.execute(sa.text("INSERT INTO nowhere VALUES (1)"))

    def lock_timeout(self, connection):
        return connection.execute(sa.text("SHOW lock_timeout")).scalar_one()

    def close(self) -> None:
        self.engine.dispose()


class AlchemyCore(Alchemy):
    @contextmanager
    def transaction(self):
        with self.engine.connect() as connection, connection.begin():
            yield connection

    def write(self, connection, number):
        connection.execute(sa.text(WRITE.format(number)))


class Django(Way):
    """Connections of Django, each under an alias of its own."""

    @contextmanager
    def transaction(self):
        with self.opened() as connection, transaction.atomic(using=connection.alias):
            yield connection

    @contextmanager
    def opened(self):
        """A connection that is registered under an alias of its own."""
        connection = ConnectionHandler({"default": self._settings()})["default"]
        connection.alias = f"messages {id(connection)}"
        connections[connection.alias] = connection
        try:
            yield connection
        finally:
            connection.close()
            del connections[connection.alias]

    def lock_timeout(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return cursor.fetchone()[0]

    def _settings(self) -> dict[str, object]:
        if self.url.startswith("sqlite"):
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.path)}
        told = psycopg.conninfo.conninfo_to_dict(self.url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": told["dbname"],
            "USER": told["user"],
            "PASSWORD": told["password"],
            "HOST": told["host"],
            "PORT": str(told["port"]),
        }

    def write(self, connection, number):
        with connection.cursor() as cursor:
            cursor.execute(WRITE.format(number))

    def fail(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO nowhere VALUES (1)")


WAYS = {
    "psycopg": (Psycopg, "postgres"),
    "sqlalchemy": (Alchemy, "postgres"),
    "sqlalchemy core": (AlchemyCore, "postgres"),
    "django": (Django, "postgres"),
    "sqlite3": (PlainSQLite, "sqlite"),
    "sqlalchemy on sqlite": (Alchemy, "sqlite"),
    "django on sqlite": (Django, "sqlite"),
}
