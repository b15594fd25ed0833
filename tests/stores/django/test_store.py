"""The store in a database of a Django project: PostgreSQL with and without its pool, and SQLite."""

import asyncio
from types import SimpleNamespace

import psycopg
import pymysql
import pytest
from django.core import mail  # type: ignore[import-untyped]  # Django brings no types
from django.db import connections, transaction  # type: ignore[import-untyped]  # as above
from psycopg.conninfo import conninfo_to_dict

from oncekey import ConfigurationError, Once, StoreError
from oncekey.core.requests import Busy
from oncekey.doctor import examine, examine_async
from oncekey.exporter import exposition
from oncekey.inspection.listing import list_records, where
from oncekey.stores import DjangoStore, MemoryStore, MySQLStore, SQLiteStore, browse, open_store
from oncekey.stores.browse import RecordQuery
from oncekey.stores.django import url_of
from oncekey.testing.conformance.base import DONE, Desk
from tests.http import django_project
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, postgres, postgres_url

__all__ = ["beside", "django_project", "postgres", "postgres_url"]

pymysql.install_as_MySQLdb()  # what Django calls for, and what needs a compiler

MINUTE = 60_000_000
ALIAS = "shop"


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


@pytest.fixture
def alias(monkeypatch):
    """Adds an alias to the settings, which are those of the process."""

    def add(**settings):
        known = connections.configure_settings({"default": {}, ALIAS: settings})
        monkeypatch.setitem(connections.settings, ALIAS, known[ALIAS])
        return known[ALIAS]

    yield add
    if ALIAS in connections.settings:
        connections[ALIAS].close()
        close_pool = getattr(connections[ALIAS], "close_pool", lambda: None)
        if connections[ALIAS].vendor == "postgresql":
            close_pool()
        del connections[ALIAS]


def on_postgresql(url, **options):
    said = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": said["dbname"],
        "USER": said["user"],
        "PASSWORD": said["password"],
        "HOST": said["host"],
        "PORT": str(said["port"]),
        "OPTIONS": options,
    }


@pytest.fixture(params=["its own connections", "the pool of Django"])
def shop(request, alias, postgres_url):
    """The alias on PostgreSQL."""
    pool = {"pool": {"min_size": 1, "max_size": 2}} if "pool" in request.param else {}
    alias(**on_postgresql(postgres_url, **pool))
    store = DjangoStore(ALIAS)
    yield store
    store.close()


def test_a_claim_inside_of_atomic_commits_beside_it(shop, postgres_url):
    desk = desk_of(shop)
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=ALIAS):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("CREATE TABLE orders (number text)")
        owner = desk.grant("a")
        other = open_store(postgres_url)
        assert type(desk_of(other).claim("b")) is Busy  # everybody sees it
        raise ZeroDivisionError
    assert desk.settle(owner) is DONE  # and the rollback has not taken it back
    other.close()


def test_it_serves_both_kinds_of_code(shop):
    once = Once(shop, cache=False)

    async def work():
        return "done"

    async def both():
        done = await once.run_async("k", work)
        await once.aclose()
        return done

    assert asyncio.run(both()) == "done"
    assert once.run("k", lambda: "again") == "done"
    assert once.resolve("k", retry=True) is False
    once.close()


def test_the_pool_of_django_lends_what_it_has(alias, postgres_url):
    alias(**on_postgresql(postgres_url, pool={"min_size": 1, "max_size": 1, "timeout": PATIENCE}))
    pool = connections[ALIAS].pool
    desk = desk_of(DjangoStore(ALIAS))
    connections[ALIAS].close()
    with transaction.atomic(using=ALIAS):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SELECT 1")
        pool.timeout = 0.05  # nobody gives one back meanwhile
        with pytest.raises(StoreError) as caught:
            desk.claim("a")
        pool.timeout = PATIENCE
        assert (caught.value.happened, caught.value.unreachable) == (False, True)
    connections[ALIAS].close()
    desk.grant("a")


def test_what_the_alias_says_reaches_the_server(alias, postgres_url, beside):
    owner = beside(postgres_url)
    owner.execute("DROP ROLE IF EXISTS clerk")
    owner.execute("CREATE ROLE clerk")
    owner.execute("GRANT ALL ON SCHEMA public TO clerk")
    said = on_postgresql(postgres_url, assume_role="clerk", application_name="it's a shop")
    alias(**said)
    with psycopg.connect(url_of(ALIAS)) as connection:
        found = connection.execute("SELECT current_user, current_setting('application_name')")
        assert found.fetchone() == ("clerk", "it's a shop")
    owner.execute("REVOKE ALL ON SCHEMA public FROM clerk")
    owner.execute("DROP ROLE clerk")


def test_the_test_runner_gets_another_database(alias, postgres, postgres_url, monkeypatch):
    """It renames the alias while the process runs, and drops the database in the end."""
    settings = alias(**on_postgresql(postgres_url))
    store = DjangoStore(ALIAS)
    desk_of(store).grant("a")
    monkeypatch.setattr(mail, "outbox", [], raising=False)
    name = settings["NAME"]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "test_{name}"')
        settings["NAME"] = f"test_{name}"
        assert store.get(None, "order-1") is None
        desk_of(store).grant("b")
        settings["NAME"] = name
        connection.execute(f'DROP DATABASE "test_{name}"')  # nobody holds it
    assert type(desk_of(store).claim("c")) is Busy
    store.close()


def test_sqlite_has_its_records_in_the_same_file(alias, tmp_path):
    alias(ENGINE="django.db.backends.sqlite3", NAME=tmp_path / "shop.db")
    store = DjangoStore(ALIAS)
    assert isinstance(store.behind, SQLiteStore)
    assert url_of(ALIAS) == f"sqlite:///{tmp_path / 'shop.db'}"
    once = Once(store)
    assert once.run("k", lambda: "done") == "done"
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT key FROM oncekey_records")
        assert cursor.fetchall() == [("k",)]
    once.close()


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
async def test_it_is_counted_and_examined_as_the_store_behind_it(
    kind, alias, request, tmp_path, monkeypatch
):
    if kind == "sqlite":
        alias(ENGINE="django.db.backends.sqlite3", NAME=tmp_path / "shop.db")
        held = "sqlite.held"
    else:
        alias(**on_postgresql(request.getfixturevalue("postgres_url")))
        held = "postgres.held"
    monkeypatch.setattr(browse, "_MOST", 2)  # so many are counted where a store is not known
    monkeypatch.setattr(browse, "_STEP", 2)
    once = Once(DjangoStore(ALIAS), observers=())
    for number in range(4):
        once.run(f"order-{number}", lambda: "done")
    with pytest.raises(TimeoutError), once.options(on_crash="hold").attempt("order-9"):
        raise TimeoutError
    assert "\noncekey_held_records 1\n" in exposition(once.store)
    assert list_records(once.store, RecordQuery()).newest_first
    assert where(once.store) == where(once.store.behind) != ""
    for findings in (examine(once.store), await examine_async(once.store.as_async())):
        assert held in {finding.check for finding in findings}
    once.close()


def test_sqlite_in_memory_is_for_tests(alias, monkeypatch):
    alias(ENGINE="django.db.backends.sqlite3", NAME="file:memorydb_shop?mode=memory&cache=shared")
    monkeypatch.delattr(mail, "outbox", raising=False)
    with pytest.raises(ConfigurationError, match="in memory"):
        Once(DjangoStore(ALIAS))
    monkeypatch.setattr(mail, "outbox", [], raising=False)
    assert isinstance(DjangoStore(ALIAS).behind, MemoryStore)


def on_mysql(**settings):
    return {"ENGINE": "django.db.backends.mysql", "NAME": "shop", **settings}


def test_what_the_alias_says_about_mysql_is_in_the_url(alias):
    session = {"init_command": "SET x = 1", "charset": "latin1", "isolation_level": None}
    said = {"USER": "us@er", "PASSWORD": "p/w:é", "HOST": "::1", "PORT": "3307"}
    alias(**on_mysql(NAME="my shop", **said, OPTIONS=session))
    store = DjangoStore(ALIAS).behind
    assert isinstance(store, MySQLStore)
    assert store.target.options == {
        "host": "::1",
        "port": 3307,
        "user": "us@er",
        "password": "p/w:é".encode(),
        "database": "my shop",
    }
    alias(**on_mysql(HOST="/run/my sql.sock"))
    assert DjangoStore(ALIAS).behind.target.options["unix_socket"] == "/run/my sql.sock"
    alias(**on_mysql())
    assert url_of(ALIAS) == "mysql://:@localhost:3306/shop"


@pytest.mark.parametrize(
    "options",
    [
        {"ssl": {"ca": "/ca.pem"}},
        {"ssl": {"ca": "/ca.pem"}, "ssl_mode": "VERIFY_IDENTITY"},
        {"ssl_ca": "/ca.pem"},
    ],
)
def test_the_ca_of_the_alias_is_checked_by_the_store(alias, options):
    alias(**on_mysql(HOST="db.example", OPTIONS=options))
    assert url_of(ALIAS) == "mysql://:@db.example:3306/shop?ssl_ca=%2Fca.pem"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl": {"ca": "/ca.pem", "cert": "/mine.pem"}}, "does not know ssl_cert in"),
        ({"ssl": True}, "does not know ssl in"),
        ({"ssl_mode": "REQUIRED"}, "does not know ssl_mode in"),
        ({"ssl_mode": "DISABLED", "ssl_ca": "/ca.pem"}, "does not know ssl_mode in"),
        ({"read_default_file": "/etc/my.cnf"}, "does not know read_default_file in"),
    ],
)
def test_nothing_about_the_way_to_mysql_is_left_out_silently(alias, options, words):
    alias(**on_mysql(OPTIONS=options))
    with pytest.raises(ConfigurationError, match=words):
        Once(DjangoStore(ALIAS))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("django://nowhere", "DATABASES has no alias 'nowhere'; it has default"),
        ("django://default/path", "write django://alias"),
        (f"django://{ALIAS}", "is a database of Oracle; name another alias, or give a URL"),
    ],
)
def test_a_wrong_alias_is_refused(given, words, alias, monkeypatch):
    alias(ENGINE="django.db.backends.sqlite3", NAME=":memory:")
    other = SimpleNamespace(vendor="oracle", display_name="Oracle")
    with monkeypatch.context() as patched, pytest.raises(ConfigurationError, match=words):
        patched.setattr(connections, "create_connection", lambda _alias: other)
        Once(given)


@pytest.mark.parametrize("given", ["", None, 7])
def test_an_alias_is_a_text(given):
    with pytest.raises(ConfigurationError, match="takes the alias of a database"):
        DjangoStore(given)
