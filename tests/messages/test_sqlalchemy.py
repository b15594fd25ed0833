"""The page about SQLAlchemy on a real PostgreSQL with asyncpg, and Alembic beside the inbox."""

import sys
import types
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from oncekey.messages import AsyncInbox
from oncekey.messages.alembic import include_object
from oncekey.messages.connections.base import plain_url
from oncekey.stores import PostgresStore
from tests.docs.snippets import run

PAGE = Path(__file__).parents[2] / "docs" / "messages-sqlalchemy.md"
ON_THE_PAGE = "sqlite+aiosqlite:///shop.db"


def test_the_page_does_what_it_says_with_asyncpg(postgres_url, monkeypatch):
    name = "page_with_asyncpg"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    text = PAGE.read_text("utf-8")
    assert text.count(ON_THE_PAGE) == 1
    url = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
    text = text.replace("postgresql://shop@localhost/shop", postgres_url)
    run(PAGE, text.replace(ON_THE_PAGE, url), name)
    with psycopg.connect(postgres_url) as connection:
        marks = connection.execute("SELECT idempotency_key, status FROM processed_messages")
        assert marks.fetchall() == [("m-1", "completed"), ("m-2", "completed")]
        invoices = connection.execute("SELECT number FROM invoices")
        assert invoices.fetchall() == [("A-17",), ("B-4",)]


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("postgresql+asyncpg://a:b%40@h/d", "postgresql://a:b%40@h/d"),
        ("postgresql+psycopg://h/d?sslmode=require", "postgresql://h/d?sslmode=require"),
        (
            "postgresql+asyncpg://h/d?ssl=require&statement_cache_size=0&application_name=x",
            "postgresql://h/d?sslmode=require&application_name=x",
        ),
        ("postgresql+asyncpg://h/d?timeout=5", "postgresql://h/d"),
        ("sqlite+aiosqlite:///shop.db", "sqlite:///shop.db"),
        ("redis+sentinel://h/0", "redis+sentinel://h/0"),
    ],
)
def test_urls_of_sqlalchemy_are_understood(url, plain):
    assert plain_url(url) == plain


async def test_alembic_does_not_drop_the_tables(postgres_url):
    inbox, store = AsyncInbox(postgres_url, "billing"), PostgresStore(postgres_url)
    await inbox.migrate()
    assert store.get("scope", "key") is None
    store.close()
    await inbox.aclose()
    metadata = sa.MetaData()
    sa.Table("orders", metadata, sa.Column("number", sa.Text))
    engine = sa.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:

        def proposed(**options):
            context = MigrationContext.configure(connection, opts=options)
            return [(one[0], one[1].name) for one in compare_metadata(context, metadata)]

        without = proposed()
        assert ("remove_table", "processed_messages") in without
        assert ("remove_table", "oncekey_records") in without
        assert proposed(include_object=include_object) == [("add_table", "orders")]
    engine.dispose()
