"""Of several PostgreSQL servers only the one that leads is asked."""

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from oncekey import StoreError
from oncekey.core.requests import Replay
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import pool
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.statements import GET, of_get
from oncekey.testing.conformance.base import Desk
from tests.servers.postgres_fixtures import (
    beside,
    breakable_postgres,
    colour,
    postgres,
    postgres_url,
)
from tests.servers.postgres_proxy_fixtures import proxied_url, proxy

__all__ = [
    "beside",
    "breakable_postgres",
    "colour",
    "postgres",
    "postgres_url",
    "proxied_url",
    "proxy",
]

MINUTE = 60_000_000


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


def refused(desk):
    with pytest.raises(StoreError, match="is read-only, as a replica is") as caught:
        desk.claim("z")
    assert caught.value.happened is False


@pytest.fixture
def standby(breakable_postgres):
    """Make the server a standby, as an old leader is that follows a new one. It leads in the end.

    Returns how to promote it earlier.
    """
    signal = breakable_postgres.folder / "data" / "standby.signal"

    def promote():
        with psycopg.connect(breakable_postgres.url("postgres"), autocommit=True) as connection:
            if signal.exists():
                connection.execute("SELECT pg_promote()")

    def demote():
        breakable_postgres.stop()
        signal.touch()
        breakable_postgres.start()
        return promote

    yield demote
    promote()


@pytest.fixture
def two_servers(postgres, breakable_postgres, tmp_path):
    """The URLs of a database that two servers have: of both, of the first and of the second.

    The first one may break. Nothing is copied between the two.
    """
    name = f"shared_{tmp_path.name}"
    secrets = tmp_path / "secrets"
    servers = (breakable_postgres, postgres)
    secrets.write_text("".join(f"*:{one.port}:*:*:{one.password}\n" for one in servers))
    secrets.chmod(0o600)
    for one in servers:
        with psycopg.connect(one.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in servers)
    both = f"postgresql://postgres@{hosts}/{name}?passfile={secrets}"
    return both, breakable_postgres.url(name), postgres.url(name)


def test_a_standby_is_not_asked_for_duplicates_either(breakable_postgres, colour, standby):
    """It may be the old leader, with a commit that the new one does not have."""
    desk = desk_of(colour(breakable_postgres.new_database()))
    desk.settle(desk.grant("a"))
    promote = standby()
    refused(desk)
    promote()
    assert type(desk.claim("b")) is Replay


def test_nobody_waits_at_a_standby(breakable_postgres, colour, standby):
    store = colour(breakable_postgres.new_database())
    owner = desk_of(store).grant("a")
    standby()
    with pytest.raises(StoreError, match="is read-only, as a replica is"):
        store.watch(None, "order-1", owner.token, 1.0)


def test_of_several_servers_the_one_that_takes_writes_is_found(two_servers, colour, standby):
    url, _, _ = two_servers
    standby()
    desk_of(colour(url)).grant("a")
    refused(desk_of(colour(f"{url}&target_session_attrs=any")))


def test_a_leader_that_takes_no_writes_any_more_is_left(two_servers, colour, beside):
    """It keeps its connections: nothing else tells that it was replaced."""
    url, first, second = two_servers
    desk_of(colour(second)).grant("a")
    desk = desk_of(colour(url))
    desk.grant("b")
    leader = beside(first)
    leader.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    leader.execute("SELECT pg_reload_conf()")
    try:
        with pytest.raises(StoreError, match="read-only"):
            while True:  # the server reads its settings in a moment
                desk_of(desk.store, "another").claim("a")
        assert desk.get().nonce == "a"
    finally:
        leader.execute("SET default_transaction_read_only = off")
        leader.execute("ALTER SYSTEM RESET default_transaction_read_only")
        leader.execute("SELECT pg_reload_conf()")


READ_ONLY = "?options=-cdefault_transaction_read_only%3Don"


def test_a_pool_of_the_caller_replaces_such_a_connection(postgres_url):
    with ConnectionPool(postgres_url + READ_ONLY, min_size=1, max_size=1, open=True) as pool:
        with pool.connection() as connection:
            before = connection.info.backend_pid
        refused(desk_of(PostgresStore(pool)))
        with pool.connection() as connection:
            assert connection.info.backend_pid != before


@pytest.mark.anyio
async def test_an_async_pool_of_the_caller_replaces_such_a_connection(postgres_url):
    url = postgres_url + READ_ONLY
    async with AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
        async with pool.connection() as connection:
            before = connection.info.backend_pid
        store = AsyncPostgresStore(pool)
        with pytest.raises(StoreError, match="is read-only, as a replica is"):
            await store.claim(desk_of(store).ask("z"))
        async with pool.connection() as connection:
            assert connection.info.backend_pid != before


def through_sqlalchemy(url):
    return url.replace("postgresql://", "postgresql+psycopg://", 1) + READ_ONLY


def test_so_does_an_engine(postgres_url):
    engine = create_engine(through_sqlalchemy(postgres_url), pool_size=1, max_overflow=0)
    with engine.connect() as connection:
        before = connection.connection.driver_connection.info.backend_pid
    refused(desk_of(PostgresStore(engine)))
    with engine.connect() as connection:
        assert connection.connection.driver_connection.info.backend_pid != before
    engine.dispose()


@pytest.mark.anyio
async def test_so_does_an_async_engine(postgres_url):
    engine = create_async_engine(through_sqlalchemy(postgres_url), pool_size=1, max_overflow=0)

    async def server():
        async with engine.connect() as connection:
            return (await connection.get_raw_connection()).driver_connection.info.backend_pid

    before, store = await server(), AsyncPostgresStore(engine)
    with pytest.raises(StoreError, match="is read-only, as a replica is"):
        await store.claim(desk_of(store).ask("z"))
    assert await server() != before
    await engine.dispose()


def test_no_connection_to_a_silent_server_is_kept(proxied_url, proxy, monkeypatch):
    """Each of them would have to fail in turn before the new leader is looked for."""
    target = Target.of(proxied_url, 10, "5s", "150ms", listen=False)
    own = pool.Own(target)
    monkeypatch.setattr(pool, "lender", lambda _: own)
    link = pool.Link(target)
    lines = [own.take() for _ in range(3)]
    for line in lines:
        own.give(line)
    proxy.fall_silent()
    with pytest.raises(StoreError, match="said nothing"):
        link.run(GET, of_get(None, "a"))
    assert all(line.connection.closed for line in lines)
