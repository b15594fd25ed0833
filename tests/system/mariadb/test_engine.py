"""A store on the engine of an application with MariaDB, in one pool with its sessions."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

from oncekey import ConfigurationError, Once, StoreError
from oncekey.core.requests import Busy, Replay, Scan
from oncekey.doctor import examine, examine_async
from oncekey.stores import AsyncMySQLStore, MySQLStore, PostgresStore
from oncekey.stores.mysql import pool, schema
from oncekey.testing import AsyncStoreConformance, StoreConformance
from oncekey.testing.conformance.base import DONE, Blocking, Desk, OnRunner
from tests.patience import until
from tests.stores.postgres.test_engine import (
    test_a_session_with_the_only_connection_is_told_so,
    test_connections_come_back_idle_and_as_they_were,
)
from tests.system.mariadb.server import serving
from tests.system.mariadb.test_conformance import OnMovedTime

__all__ = [
    "test_a_session_with_the_only_connection_is_told_so",
    "test_connections_come_back_idle_and_as_they_were",
]

MINUTE = 60_000_000
ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("number", sa.String(9), primary_key=True))
SESSION = sa.text(
    "SELECT @@session.time_zone, @@session.autocommit, @@session.tx_isolation, "
    "@@session.innodb_lock_wait_timeout, @@session.group_concat_max_len, "
    "@@session.completion_type, @@session.tx_read_only, @@session.sql_mode, @@in_transaction, "
    "CONNECTION_ID()"
)
"""All that the store or its procedures set, and whose session it is."""
OWN = (
    "SET SESSION time_zone = '-07:00', innodb_lock_wait_timeout = 7, group_concat_max_len = 4",
    "SET SESSION sql_mode = 'ANSI_QUOTES,EMPTY_STRING_IS_NULL'",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
)
"""What an application may have told its sessions."""
LOCKED = "SELECT 1 FROM oncekey_records WHERE `key` = 'order-1' FOR UPDATE"


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


def blocking(url):
    return url.replace("mysql:", "mysql+pymysql:", 1)


def awaiting(url):
    return url.replace("mysql:", "mariadb+asyncmy:", 1)


class Blockingly:
    """An application with an engine for code that blocks, and a store on it."""

    def __init__(self, url, **options):
        self.engine = sa.create_engine(blocking(url), **options)
        self.pool_of = self.engine
        self.store = Blocking(MySQLStore(self.engine))

    def examine(self):
        return examine(self.store._store)

    @contextmanager
    def session(self):
        with self.engine.begin() as connection:
            yield connection.execute

    def close(self):
        self.engine.dispose()


class InCoroutines:
    """The same with an engine for coroutines."""

    def __init__(self, url, **options):
        self.runner = asyncio.Runner()
        self.engine = create_async_engine(awaiting(url), **options)
        self.pool_of = self.engine.sync_engine
        self.store = OnRunner(AsyncMySQLStore(self.engine), self.runner)

    def examine(self):
        return self.runner.run(examine_async(self.store._store))

    @contextmanager
    def session(self):
        connection = AsyncConnection(self.engine)
        self.runner.run(_begun(connection))

        def execute(*arguments):
            return self.runner.run(connection.execute(*arguments))

        try:
            yield execute
            self.runner.run(connection.commit())
        finally:
            self.runner.run(connection.close())

    def close(self):
        self.runner.run(self.engine.dispose())
        self.runner.close()


async def _begun(connection):
    await connection.start()


@pytest.fixture(params=[Blockingly, InCoroutines])
def application(request, url):
    made = []

    def make(**options):
        made.append(request.param(url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


class TestMySQLOnAnEngine(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, clock):
        engine = sa.create_engine(blocking(clock.url))
        yield MySQLStore(engine)
        engine.dispose()


class TestAsyncMySQLOnAnEngine(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return AsyncMySQLStore(create_async_engine(awaiting(clock.url), poolclass=NullPool))


# Two users of one pool


def test_a_session_and_the_store_take_turns_on_one_connection(application, mariadb, new_url, url):
    app = application(pool_size=1, max_overflow=0)
    with app.session() as execute:
        execute(sa.text("DROP TABLE IF EXISTS orders"))
        execute(sa.schema.CreateTable(ORDERS))
        (mine,) = execute(sa.text("SELECT CONNECTION_ID()")).one()
    desk = desk_of(app.store)
    owner = desk.grant("a")
    with app.session() as execute:
        execute(sa.insert(ORDERS).values(number="A-17"))
        assert execute(sa.text("SELECT CONNECTION_ID()")).one() == (mine,)
    assert desk.settle(owner) is DONE
    assert type(desk.claim("b")) is Replay
    with app.session() as execute:
        assert execute(sa.select(ORDERS)).all() == [("A-17",)]
        assert execute(sa.text("SELECT CONNECTION_ID()")).one() == (mine,)


def test_a_claim_inside_of_a_session_commits_beside_it(application, url):
    app = application(pool_size=2, max_overflow=0)
    desk = desk_of(app.store)
    other = desk_of(MySQLStore(url))
    with pytest.raises(ZeroDivisionError), app.session() as execute:
        execute(sa.text("INSERT INTO oncekey_audit (at, entry) VALUES (0, '')"))
        desk.grant("a")
        assert type(other.claim("b")) is Busy  # seen by everybody, before the session ends
        raise ZeroDivisionError
    assert type(desk.claim("c")) is Busy  # and not rolled back with it
    other.store.close()


def every_verb(desk):
    """One key through every verb, alone and in a crowd."""
    store = desk.store
    owner = desk.grant("a")
    assert desk.renew(owner) is DONE
    assert desk.note(owner, b"noted", 1) is DONE
    assert desk.release(owner, hold=True, uncertain=True) is DONE
    assert desk.resolve(desk.read(), status="released") is DONE
    again = desk.grant("b")
    assert type(desk.claim("c")) is Busy
    answers = store.claim_together([desk_of(store, f"k-{n}").ask(f"n-{n}") for n in range(9)])
    assert {type(answer).__name__ for answer in answers} == {"Granted"}
    answers = store.claim_together([desk_of(store, f"k-{n}").ask(f"m-{n}") for n in range(4, 14)])
    assert [type(answer).__name__ for answer in answers] == ["Busy"] * 5 + ["Granted"] * 5
    assert desk.settle(again) is DONE
    assert type(desk.claim("d")) is Replay
    assert {one.key for one in store.scan(Scan()).records} >= {"order-1", "k-0", "k-13"}
    assert store.purge(0, 10) == 0
    assert desk.forget(again) is DONE


@pytest.mark.parametrize("reset", ["rollback", None])
def test_a_session_is_lent_back_as_it_was_and_does_not_matter(application, reset):
    app = application(pool_size=1, max_overflow=0, pool_reset_on_return=reset)
    desk_of(app.store, "warm").grant("a")
    with app.session() as execute:
        for statement in OWN:
            execute(sa.text(statement))
        before = execute(SESSION).one()
    assert before[1] == 0  # so that whatever was read has begun a transaction
    every_verb(desk_of(app.store))
    with app.session() as execute:
        assert execute(SESSION).one() == before


def test_the_first_session_is_lent_back_as_it_was_too(application, mariadb, new_url):
    """Migrating takes other settings and a lock: that session is not lent back at all."""
    app = type(application())(new_url, pool_size=1, max_overflow=0)
    try:
        with app.session() as execute:
            execute(sa.text(OWN[0]))
            *_, migrating = before = execute(SESSION).one()
        every_verb(desk_of(app.store))
        with app.session() as execute:
            *_, another = after = execute(SESSION).one()
        assert another != migrating
        assert after[0] == "SYSTEM" != before[0]
    finally:
        app.close()


def test_a_record_of_a_repeatable_read_is_the_newest(application, url):
    """The session of the engine would go on seeing what it saw first."""
    app = application(pool_size=1, max_overflow=0, pool_reset_on_return=None)
    other = desk_of(MySQLStore(url))
    owner = other.grant("a")
    desk = desk_of(app.store)
    assert type(desk.claim("b")) is Busy
    assert other.settle(owner) is DONE
    assert type(desk.claim("b")) is Replay
    other.store.close()


# Connections that break


@contextmanager
def held_up(app, mariadb, url):
    """A renewal waits for a row. Yield its session, and what it raises."""
    database = url.rpartition("/")[2]
    desk = desk_of(app.store)
    owner = desk.grant("a")
    found = (
        "SELECT id FROM information_schema.processlist WHERE db = %r AND id <> CONNECTION_ID() "
        "AND command = 'Query' AND info LIKE '%%FOR UPDATE%%'"
    )
    with mariadb.connected(database) as blocker, ThreadPoolExecutor(1) as threads:
        with blocker.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(LOCKED)
        renewed = threads.submit(desk.renew, owner)
        (session,) = until(lambda: mariadb.say(found % database))
        yield session[0], renewed


@pytest.mark.parametrize("how", ["KILL QUERY", "KILL"])
def test_a_session_that_was_broken_off_is_not_lent_back(application, mariadb, url, how):
    app = application(pool_size=1, max_overflow=0)
    with held_up(app, mariadb, url) as (session, renewed):
        mariadb.say(f"{how} {session}")
        with pytest.raises(StoreError) as caught:
            renewed.result()
    assert caught.value.happened is None
    with app.session() as execute:
        *_, open_here, mine = execute(SESSION).one()
    assert (open_here, mine != session) == (0, True)
    assert type(desk_of(app.store).claim("c")) is Busy


def test_a_silent_server_is_given_up_although_the_engine_would_wait(application, mariadb, url):
    app = application(pool_size=1, max_overflow=0)
    kind = type(app.store._store)
    app.store._store = kind(app.engine, timeout="100ms")
    app.store.get(None, "warm")
    with held_up(app, mariadb, url) as (session, renewed):
        with pytest.raises(StoreError) as caught:
            renewed.result()
        assert (caught.value.happened, caught.value.unreachable) == (None, True)
    with app.session() as execute:
        assert execute(SESSION).one()[-1] != session


def test_a_connection_that_the_server_closed_is_not_used(application, mariadb):
    app = application(pool_size=1, max_overflow=0)
    desk_of(app.store).grant("a")
    with app.session() as execute:
        mine = execute(SESSION).one()[-1]
    mariadb.say(f"KILL {mine}")
    until(lambda: (mine,) not in mariadb.say("SELECT id FROM information_schema.processlist"))
    assert type(desk_of(app.store).claim("b")) is Busy


def test_an_interrupted_thread_gives_its_connection_back(url, monkeypatch):
    engine = sa.create_engine(blocking(url), pool_size=1, max_overflow=0)
    store = MySQLStore(engine)
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


def test_an_interrupted_task_gives_its_connection_back(url):
    async def main():
        engine = create_async_engine(awaiting(url), pool_size=1, max_overflow=0)
        store = AsyncMySQLStore(engine, fast=False)
        await store.get("scope", "key")
        for turns in range(9):
            task = asyncio.create_task(store.get("scope", "key"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert engine.pool.checkedout() == 0
        assert await store.get("scope", "key") is None
        await engine.dispose()

    asyncio.run(main())


FORKED = """
import os, sys
import sqlalchemy as sa
from oncekey import Once

engine = sa.create_engine(sys.argv[1], pool_size=1, max_overflow=0)
once = Once(engine, cache=False)
with engine.connect() as connection:
    mine = connection.scalar(sa.text("SELECT CONNECTION_ID()"))
assert once.run("before", lambda: "parent") == "parent"
if (child := os.fork()) == 0:
    assert once.run("before", lambda: "child") == "parent"
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT CONNECTION_ID()")) != mine
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert once.run("before", lambda: "again") == "parent"
with engine.connect() as connection:
    assert connection.scalar(sa.text("SELECT CONNECTION_ID()")) == mine
engine.dispose()
"""


def test_a_forked_child_has_connections_of_its_own(url):
    MySQLStore(url).get(None, "migrated")
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED]
    subprocess.run([*words, blocking(url)], check=True, env=os.environ)


# Once, and other kinds of engines


@pytest.mark.parametrize("options", [{"poolclass": NullPool}, {"isolation_level": "AUTOCOMMIT"}])
def test_other_kinds_of_engines_do_as_well(application, options):
    every_verb(desk_of(application(**options).store))


def test_once_takes_an_engine_for_both_kinds_of_code(url):
    engine = sa.create_engine(blocking(url))
    once = Once(engine, cache=False)

    async def work():
        return "done"

    assert asyncio.run(once.run_async("k", work)) == "done"
    assert once.run("k", lambda: "again") == "done"
    once.close()
    assert engine.pool.checkedout() == 0
    engine.dispose()


async def test_once_takes_an_engine_for_coroutines(url):
    engine = create_async_engine(awaiting(url))
    once = Once(engine, cache=False)
    assert type(once.core.given) is AsyncMySQLStore

    async def work():
        return "done"

    assert await once.run_async("k", work) == "done"
    assert (await once.get_async("k")).status == "completed"
    await once.aclose()
    await engine.dispose()


def test_an_async_engine_belongs_to_one_loop(url):
    engine = create_async_engine(awaiting(url))
    store = AsyncMySQLStore(engine)
    with asyncio.Runner() as runner:
        assert runner.run(store.get("scope", "key")) is None
        with pytest.raises(ConfigurationError, match="poolclass=NullPool"):
            asyncio.run(store.get("scope", "key"))
        runner.run(engine.dispose())
    assert asyncio.run(_asked_and_disposed(store, engine)) is None


async def _asked_and_disposed(store, engine):
    found = await store.get("scope", "key")
    await engine.dispose()
    return found


def test_the_doctor_examines_the_server_of_an_engine(application):
    app = application(pool_size=1, max_overflow=0)
    desk_of(app.store).grant("a")
    found = {one.check: one.severity for one in app.examine()}
    assert (found["mysql.clock"], found["mysql.server"]) == ("fine", "fine")
    assert app.pool_of.pool.checkedout() == 0


# What is refused


def test_a_transaction_that_a_handler_left_open_is_refused(application, mariadb, url):
    app = application(pool_size=1, max_overflow=0)
    desk_of(app.store, "warm").grant("a")

    def begin(connection, *_):
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM oncekey_audit")
        cursor.close()

    sa.event.listen(app.pool_of, "checkout", begin)
    with pytest.raises(ConfigurationError, match="let handlers of its events commit"):
        desk_of(app.store).claim("a")
    first = type(app)(url)
    sa.event.listen(first.pool_of, "checkout", begin)
    with pytest.raises(ConfigurationError, match="let handlers of its events commit"):
        desk_of(first.store).claim("a")  # before anything is migrated
    first.close()
    assert app.pool_of.pool.checkedout() == 0
    sa.event.remove(app.pool_of, "checkout", begin)
    desk_of(app.store).grant("a")


def test_a_database_that_is_not_there_is_explained(application, url):
    lost = type(application())(url + "_nowhere")
    try:
        with pytest.raises(StoreError, match="create the database, or name another") as caught:
            desk_of(lost.store).claim("a")
        assert caught.value.happened is False
    finally:
        lost.close()


def test_a_table_in_myisam_is_refused(application, mariadb, url):
    database = url.rpartition("/")[2]
    mariadb.say("ALTER TABLE oncekey_audit ENGINE = MyISAM", database=database)
    try:
        with pytest.raises(ConfigurationError, match="ALTER TABLE oncekey_audit ENGINE = InnoDB"):
            desk_of(application().store).claim("a")
    finally:
        mariadb.say("ALTER TABLE oncekey_audit ENGINE = InnoDB", database=database)


def test_a_read_only_server_is_refused():
    with serving() as server:
        engine = sa.create_engine(blocking(server.url(server.new_database())))
        desk_of(MySQLStore(engine)).grant("a")
        server.say("SET GLOBAL read_only = 1")
        with pytest.raises(StoreError, match="is read-only") as caught:
            desk_of(MySQLStore(engine), "b").claim("a")
        assert caught.value.happened is False
        engine.dispose()
        with pytest.raises(ConfigurationError, match="is read-only"):
            desk_of(MySQLStore(engine), "b").claim("a")
        engine.dispose()


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("8.0.36", "where a single statement cannot have settings of its own"),
        ("5.7.44", "is version 5.7.44, and oncekey needs 8.0 or newer"),
        ("10.5.8-MariaDB", "is version 10.5.8-MariaDB, and oncekey needs 10.6 or newer"),
    ],
)
def test_other_servers_are_refused(application, monkeypatch, version, words):
    monkeypatch.setattr(schema, "SERVER", schema.SERVER.replace("VERSION()", repr(version)))
    with pytest.raises(ConfigurationError, match=words):
        desk_of(application().store).claim("a")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mysql+mysqldb://h/d", r"of mysql\+pymysql, but this one is of mysql\+mysqldb"),
        ("mariadb+mysqldb://h/d", r"with mysql\+pymysql://, or give the store the URL mysql://"),
        ("mssql+pymssql://h/d", "Once takes engines of mariadb and mysql and postgresql"),
    ],
)
def test_other_engines_are_refused(name, words):
    driver = SimpleNamespace(
        paramstyle="pyformat", __version__="2.9.0", version_info=(2, 2), Binary=bytes
    )
    with pytest.raises(ConfigurationError, match=words):
        Once(sa.create_engine(name, module=driver))


def test_engines_that_are_not_what_they_seem_are_refused(url):
    with pytest.raises(ConfigurationError, match="StaticPool lends one connection to everybody"):
        Once(sa.create_engine(blocking(url), poolclass=StaticPool))
    engine = create_async_engine(awaiting(url))
    with pytest.raises(ConfigurationError, match="pass the AsyncEngine itself"):
        Once(engine.sync_engine)
    with pytest.raises(ConfigurationError, match="give it to AsyncMySQLStore"):
        MySQLStore(engine)
    with pytest.raises(ConfigurationError, match=r"shares an engine of postgresql\+psycopg"):
        PostgresStore(engine)


async def test_the_wrong_colour_is_refused(url):
    with pytest.raises(ConfigurationError, match="give it to MySQLStore"):
        await AsyncMySQLStore(sa.create_engine(blocking(url))).purge(0, 1)
