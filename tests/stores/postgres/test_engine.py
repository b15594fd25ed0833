"""A PostgreSQL store on the engine of an application, in one pool with its sessions."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, StaticPool

from oncekey import ConfigurationError, Once, StoreError
from oncekey.core.requests import Busy, Replay
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import pool
from oncekey.testing.conformance.base import DONE, Blocking, Desk, OnRunner
from tests.docs.snippets import run
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, postgres, postgres_url

__all__ = ["beside", "postgres", "postgres_url"]

PAGE = Path(__file__).parents[3] / "docs" / "http-fastapi.md"
MINUTE = 60_000_000
PIDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
COUNT = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
ENDED = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
WAITING = f"{PIDS} AND wait_event_type = 'Lock'"
ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("number", sa.Text, primary_key=True))


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


def address(url):
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


class Blockingly:
    """An application with an engine for code that blocks, and a store on it."""

    def __init__(self, url, **options):
        self.engine = sa.create_engine(address(url), **options)
        self.pool_of = self.engine
        self.store = Blocking(PostgresStore(self.engine))

    @contextmanager
    def session(self):
        with Session(self.engine) as session, session.begin():
            yield session.execute

    def close(self):
        self.engine.dispose()


class InCoroutines:
    """The same with an engine for coroutines."""

    def __init__(self, url, **options):
        self.runner = asyncio.Runner()
        self.engine = create_async_engine(address(url), **options)
        self.pool_of = self.engine.sync_engine
        self.store = OnRunner(AsyncPostgresStore(self.engine), self.runner)

    @contextmanager
    def session(self):
        session = AsyncSession(self.engine)

        def execute(*arguments):
            return self.runner.run(session.execute(*arguments))

        self.runner.run(_begun(session))
        try:
            yield execute
            self.runner.run(session.commit())
        finally:
            self.runner.run(session.close())

    def close(self):
        self.runner.run(self.engine.dispose())
        self.runner.close()


async def _begun(session):
    await session.begin()


@pytest.fixture(params=[Blockingly, InCoroutines])
def application(request, postgres_url):
    made = []

    def make(**options):
        made.append(request.param(postgres_url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_session_and_the_store_take_turns_on_one_connection(application, beside, postgres_url):
    app = application(pool_size=1, max_overflow=0)
    with app.session() as execute:
        execute(sa.schema.CreateTable(ORDERS))
    desk = desk_of(app.store)
    owner = desk.grant("a")
    with app.session() as execute:
        execute(sa.insert(ORDERS).values(number="A-17"))
    assert desk.settle(owner) is DONE
    assert type(desk.claim("b")) is Replay
    with app.session() as execute:
        assert execute(sa.select(ORDERS)).all() == [("A-17",)]
    assert beside(postgres_url).execute(COUNT).fetchone() == (1,)


def test_a_claim_inside_of_a_session_commits_beside_it(application, postgres_url):
    app = application(pool_size=2, max_overflow=0)
    desk = desk_of(app.store)
    with pytest.raises(ZeroDivisionError), app.session() as execute:
        execute(sa.schema.CreateTable(ORDERS))
        desk.grant("a")
        other = desk_of(PostgresStore(postgres_url))
        assert type(other.claim("b")) is Busy  # seen by everybody, before the session ends
        raise ZeroDivisionError
    assert type(desk.claim("c")) is Busy  # and not rolled back with it
    other.store.close()


def test_a_session_with_the_only_connection_is_told_so(application):
    app = application(pool_size=1, max_overflow=0, pool_timeout=0.05)
    desk = desk_of(app.store)
    with app.session() as execute:
        execute(sa.select(1))
        with pytest.raises(StoreError, match="raise pool_size or max_overflow") as caught:
            desk.claim("a")
        assert (caught.value.happened, caught.value.unreachable) == (False, True)
    desk.grant("a")


def test_connections_come_back_idle_and_as_they_were(application):
    app = application(pool_size=3, max_overflow=0)
    desk_of(app.store, "warm").grant("a")
    desk = desk_of(app.store)
    answers = app.store.claim_together([desk.ask(f"nonce-{number}") for number in range(8)])
    assert sorted(type(answer).__name__ for answer in answers) == ["Busy"] * 7 + ["Granted"]
    assert app.pool_of.pool.checkedout() == 0


@pytest.mark.parametrize("options", [{"poolclass": NullPool}, {"isolation_level": "AUTOCOMMIT"}])
def test_other_kinds_of_engines_do_as_well(application, options):
    app = application(**options)
    desk = desk_of(app.store)
    assert desk.settle(desk.grant("a")) is DONE
    assert type(desk.claim("b")) is Replay


def test_a_connection_that_the_server_closed_is_not_used(application, beside, postgres_url):
    app = application(pool_size=1, max_overflow=0)
    desk_of(app.store).grant("a")
    beside(postgres_url).execute(ENDED)
    assert type(desk_of(app.store).claim("b")) is Busy


def test_a_connection_that_breaks_during_a_verb_is_replaced(application, beside, postgres_url):
    app = application(pool_size=1, max_overflow=0)
    desk = desk_of(app.store)
    owner = desk.grant("a")
    killer = beside(postgres_url)

    def end_it():
        while not (found := killer.execute(WAITING).fetchone()):
            pass
        killer.execute("SELECT pg_terminate_backend(%s, 10000)", found)

    with psycopg.connect(postgres_url) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("SELECT FROM oncekey_records FOR UPDATE")
        ended = pool.submit(end_it)
        with pytest.raises(StoreError, match="was lost") as caught:
            desk.renew(owner)
        ended.result()
    assert caught.value.happened is None
    assert type(desk.claim("c")) is Busy


def test_a_database_that_is_not_there_is_explained(application):
    app = application()
    app.pool_of.dispose()
    url = app.pool_of.url.set(database="nowhere")
    kind = type(app)
    lost = kind(url.render_as_string(hide_password=False).replace("+psycopg", ""))
    try:
        with pytest.raises(StoreError, match="create it, or name another one") as caught:
            desk_of(lost.store).claim("a")
        assert caught.value.happened is False
    finally:
        lost.close()


def test_a_transaction_that_a_handler_left_open_is_refused(application):
    app = application(pool_size=1, max_overflow=0)

    def begin(connection, *_):
        cursor = connection.cursor()
        cursor.execute("SET application_name = 'tenant'")
        cursor.close()

    sa.event.listen(app.pool_of, "checkout", begin)
    with pytest.raises(ConfigurationError, match="let handlers of its events commit"):
        desk_of(app.store).claim("a")
    assert app.pool_of.pool.checkedout() == 0
    sa.event.remove(app.pool_of, "checkout", begin)
    desk_of(app.store).grant("a")


def test_an_interrupted_verb_gives_its_connection_back(postgres_url, beside, until_async):
    looking = beside(postgres_url)

    async def main():
        engine = create_async_engine(address(postgres_url), pool_size=1, max_overflow=0)
        store = AsyncPostgresStore(engine, fast=False)
        await store.get("scope", "key")
        async with await psycopg.AsyncConnection.connect(postgres_url) as blocker:
            await blocker.execute("LOCK TABLE oncekey_records")
            task = asyncio.create_task(store.get("scope", "key"))
            await until_async(lambda: looking.execute(WAITING).fetchone())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert engine.pool.checkedout() == 0
        assert await store.get("scope", "key") is None
        await engine.dispose()

    asyncio.run(main())


def test_an_interrupted_thread_gives_its_connection_back(postgres_url, monkeypatch):
    engine = sa.create_engine(address(postgres_url), pool_size=1, max_overflow=0)
    store = PostgresStore(engine)
    store.get("scope", "key")

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pool, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.get("scope", "key")
    assert engine.pool.checkedout() == 0
    assert store.get("scope", "key") is None
    engine.dispose()


async def test_once_takes_an_engine_for_coroutines(postgres_url):
    engine = create_async_engine(address(postgres_url))
    once = Once(engine, cache=False)
    assert type(once.core.given) is AsyncPostgresStore

    async def work():
        return "done"

    assert await once.run_async("k", work) == "done"
    assert (await once.get_async("k")).status == "completed"
    await once.aclose()
    await engine.dispose()


def test_once_takes_an_engine_for_both_kinds_of_code(postgres_url):
    engine = sa.create_engine(address(postgres_url))
    once = Once(engine, cache=False)

    async def work():
        return "done"

    assert asyncio.run(once.run_async("k", work)) == "done"
    assert once.run("k", lambda: "again") == "done"
    once.close()
    assert engine.pool.checkedout() == 0
    engine.dispose()


def test_an_async_engine_belongs_to_one_loop(postgres_url):
    engine = create_async_engine(address(postgres_url))
    store = AsyncPostgresStore(engine)

    async def ask(*, last):
        found = await store.get("scope", "key")
        if last:
            await engine.dispose()
        return found

    assert asyncio.run(ask(last=True)) is None
    assert asyncio.run(ask(last=False)) is None
    with pytest.raises(ConfigurationError, match="poolclass=NullPool"):
        asyncio.run(ask(last=True))
    asyncio.run(engine.dispose())


def test_an_async_engine_without_a_pool_serves_several_loops(postgres_url):
    engine = create_async_engine(address(postgres_url), poolclass=NullPool)
    store = AsyncPostgresStore(engine)
    together = threading.Barrier(3)

    async def ask():
        await asyncio.to_thread(together.wait, PATIENCE)  # three loops, and all of them run
        for _ in range(20):
            await store.get("scope", "key")

    # SQLAlchemy hangs where several loops open the first connection of an engine together.
    asyncio.run(store.purge(0, 1))
    with ThreadPoolExecutor(3) as pool:
        for one in [pool.submit(asyncio.run, ask()) for _ in range(3)]:
            one.result()


def test_the_page_about_fastapi_does_what_it_says_on_postgresql(
    postgres_url, monkeypatch, tmp_path
):
    """Sessions, an inbox and the records of a middleware, in one database."""
    name = "page_on_an_engine"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    for on_the_page, ours in (
        ("sqlite+aiosqlite:///bank.db", address(postgres_url)),
        ("sqlite:///bank.db", postgres_url),
    ):
        assert on_the_page in text
        text = text.replace(on_the_page, ours)
    run(PAGE, text, name)
    assert list(tmp_path.iterdir()) == []
    with psycopg.connect(postgres_url) as connection:
        kept = connection.execute("SELECT count(*) FROM oncekey_records").fetchone()
    assert kept == (1,)


FORKED = """
import os, sys
import sqlalchemy as sa
from oncekey import Once

engine = sa.create_engine(sys.argv[1], pool_size=1, max_overflow=0)
once = Once(engine, cache=False)
with engine.connect() as connection:
    mine = connection.scalar(sa.text("SELECT pg_backend_pid()"))
assert once.run("before", lambda: "parent") == "parent"
if (child := os.fork()) == 0:
    assert once.run("before", lambda: "child") == "parent"
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT pg_backend_pid()")) != mine
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert once.run("before", lambda: "again") == "parent"
with engine.connect() as connection:
    assert connection.scalar(sa.text("SELECT pg_backend_pid()")) == mine
engine.dispose()
"""


def test_a_forked_child_has_connections_of_its_own(postgres_url):
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    subprocess.run([*words, address(postgres_url)], check=True, env=os.environ)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+asyncpg://h/d", r"postgresql\+psycopg://, or give the store the URL"),
        ("mssql+pymssql://h/d", "give it the URL of a store instead"),
        ("sqlite://", r"Once\('memory://'\)"),
        ("sqlite:///:memory:", r"Once\('memory://'\)"),
        ("sqlite:///file:shop.db?uri=true", "write the path of the file"),
    ],
)
def test_what_cannot_be_shared_is_refused(url, words):
    driver = SimpleNamespace(paramstyle="pyformat", __version__="2.9", sqlite_version_info=(3, 40))
    with pytest.raises(ConfigurationError, match=words):
        Once(sa.create_engine(url, module=driver))


def test_engines_that_are_not_what_they_seem_are_refused(postgres_url):
    with pytest.raises(ConfigurationError, match="StaticPool lends one connection to everybody"):
        Once(sa.create_engine(address(postgres_url), poolclass=StaticPool))
    engine = create_async_engine(address(postgres_url))
    with pytest.raises(ConfigurationError, match="pass the AsyncEngine itself"):
        Once(engine.sync_engine)
    with pytest.raises(ConfigurationError, match="give it to AsyncPostgresStore"):
        PostgresStore(engine)


@pytest.mark.parametrize("make", [sa.create_engine, create_async_engine])
def test_the_store_of_an_engine_of_sqlite_opens_the_same_file(make, tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    engine = make(url if make is sa.create_engine else url.replace(":", "+aiosqlite:", 1))
    once = Once(engine)
    assert once.run("k", lambda: "done") == "done"
    once.close()
    with sa.create_engine(url).connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM oncekey_records")) == 1
