"""Nothing is answered that a synchronous standby of PostgreSQL may not have."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from oncekey import Once, StoreError
from oncekey.core.requests import Claim, Granted
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.testing.conformance.base import DONE, Desk
from tests.leases import unhurried
from tests.patience import PATIENCE, until, until_async
from tests.servers.postgres_fixtures import beside, breakable_postgres, colour
from tests.servers.postgres_standby import standby

__all__ = ["beside", "breakable_postgres", "colour", "standby"]

HOUR = 3_600_000_000
OFF = "ALTER DATABASE {} SET synchronous_commit = {}"


def desk_of(store, key="order-1"):
    return Desk(store, lease=HOUR, ttl=HOUR, key=key)


@pytest.fixture
def thread():
    """Runs a verb that must wait."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def waits(standby, verb):
    """Whether the verb is answered only when the standby is back. Returns the answer."""
    until(lambda: standby.waiting() or verb.done())
    assert not verb.done()
    standby.come_back()
    return verb.result(PATIENCE)


# Asked again


def test_an_owner_who_asks_again_is_answered_when_the_standby_has_it(standby, colour, thread):
    """Its first claim may be on this server alone: two owners would follow a fail-over."""
    desk = desk_of(colour(standby.url, timeout=PATIENCE))
    owner = desk.grant("a")
    standby.leave()
    answer = waits(standby, thread(desk.claim, "a"))
    assert type(answer) is Granted
    assert answer.record == owner  # it was written, and nothing has changed


AGAIN = {
    "settle": lambda desk, owner: desk.settle(owner),
    "release": lambda desk, owner: desk.release(owner),
    "hold": lambda desk, owner: desk.hold(owner),
    "note": lambda desk, owner: desk.note(owner, b"seen", 1),
}


@pytest.mark.parametrize("verb", AGAIN.values(), ids=AGAIN)
def test_an_end_that_is_told_again_is_confirmed_when_the_standby_has_it(
    standby, colour, thread, verb
):
    desk = desk_of(colour(standby.url, timeout=PATIENCE))
    owner = desk.grant("a")
    assert verb(desk, owner) is DONE
    before = desk.get()
    standby.leave()
    assert waits(standby, thread(verb, desk, owner)) is DONE
    assert desk.get() == before


def claim(key):
    return Claim(None, key, nonce="a", fingerprint=None, lease=HOUR, ttl=HOUR)


@pytest.mark.fast_path("claims that share a statement")
async def test_owners_who_ask_again_together_are_answered_when_the_standby_has_it(standby):
    store = AsyncPostgresStore(standby.url, timeout=PATIENCE)
    asks = [claim(f"k{number}") for number in range(5)]
    owners = await asyncio.gather(*map(store.claim, asks))
    again = await asyncio.gather(*map(store.claim, asks))  # from now on they share a statement
    assert [answer.record for answer in again] == [answer.record for answer in owners]
    standby.leave()
    tasks = [asyncio.create_task(store.claim(ask)) for ask in asks]
    await until_async(lambda: len(standby.waiting()) == len(tasks) or any(t.done() for t in tasks))
    assert not any(task.done() for task in tasks)
    standby.come_back()
    assert {type(answer) for answer in await asyncio.gather(*tasks)} == {Granted}
    await store.aclose()


# synchronous_commit


NAMED = "?application_name=oncekey"


def database_of(url):
    return url.rpartition("/")[2]


WRITES = {
    "claim": lambda desk, owner: desk.grant("b"),
    "renew": lambda desk, owner: desk.renew(owner),
    **AGAIN,
}
GIVEN = {
    "a URL": lambda stack, url: url,
    "a pool": lambda stack, url: stack.enter_context(ConnectionPool(url, min_size=1, max_size=1)),
    "a connection": lambda stack, url: stack.enter_context(psycopg.connect(url, autocommit=True)),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("verb", WRITES)
def test_every_write_waits_for_the_standby_whatever_the_session_was_told(
    standby, beside, thread, verb, given
):
    beside(standby.url).execute(OFF.format(database_of(standby.url), "off"))
    with ExitStack() as stack:
        store = PostgresStore(given(stack, standby.url + NAMED), timeout=PATIENCE)
        owner = desk_of(store).grant("a")
        key = "order-2" if verb == "claim" else "order-1"
        standby.leave()
        waits(standby, thread(WRITES[verb], desk_of(store, key), owner))
        store.close()


@pytest.mark.fast_path("claims and settles that share a statement")
async def test_batches_wait_for_the_standby_whatever_the_session_was_told(standby, beside):
    beside(standby.url).execute(OFF.format(database_of(standby.url), "off"))
    async with AsyncConnectionPool(standby.url + NAMED, open=False, min_size=1) as pool:
        store = AsyncPostgresStore(pool)
        await asyncio.gather(*(store.claim(claim(f"k{number}")) for number in range(5)))
        standby.leave()
        tasks = [asyncio.create_task(store.claim(claim(f"m{number}"))) for number in range(5)]
        await until_async(lambda: standby.waiting() or all(task.done() for task in tasks))
        assert not any(task.done() for task in tasks)
        standby.come_back()
        assert {type(answer) for answer in await asyncio.gather(*tasks)} == {Granted}


@pytest.mark.parametrize(("level", "becomes"), [("off", "on"), ("remote_apply", "remote_apply")])
def test_a_session_that_waits_for_more_is_left_so(standby, beside, level, becomes):
    beside(standby.url).execute(OFF.format(database_of(standby.url), level))
    store = PostgresStore(standby.url)
    desk_of(store).grant("a")
    (line,) = store._links.here()._lender._idle
    assert line.connection.execute("SHOW synchronous_commit").fetchone() == (becomes,)
    store.close()


# A wait that somebody cancelled


WARNS = """
    CREATE FUNCTION warns() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE WARNING 'of somebody else';
        RETURN NEW;
    END
    $$;
    CREATE TRIGGER warns AFTER INSERT ON oncekey_records FOR EACH ROW EXECUTE FUNCTION warns();
"""


def test_another_warning_is_no_doubt(standby, colour, beside):
    store = colour(standby.url)
    desk_of(store, "warm").grant("a")
    beside(standby.url).execute(WARNS)
    assert desk_of(store).grant("a")


def test_a_commit_that_only_this_server_confirms_is_unknown(standby, colour, thread):
    store = colour(standby.url, timeout=PATIENCE)
    desk_of(store, "warm").grant("a")
    desk = desk_of(store)
    standby.leave()
    claim = thread(desk.claim, "a")
    until(lambda: standby.waiting() or claim.done())
    standby.give_up_waiting()
    with pytest.raises(StoreError, match="committed without its synchronous standby") as caught:
        claim.result(PATIENCE)
    assert caught.value.happened is None
    assert type(waits(standby, thread(desk.claim, "a"))) is Granted
    assert desk_of(store, "next").grant("a")


def test_a_call_whose_claim_only_this_server_confirms_asks_again_before_it_runs(
    standby, beside, thread, monkeypatch
):
    unhurried(monkeypatch)
    other, ran = beside(standby.url), []
    once = Once(PostgresStore(standby.url, timeout=PATIENCE), observers=())
    once.run("warm", lambda: None)
    standby.leave()
    call = thread(once.run, "order-1", lambda: ran.append(1) or "paid")
    until(standby.waiting)
    standby.give_up_waiting()
    claimed = "SELECT 1 FROM oncekey_records WHERE key = 'order-1'"
    until(lambda: call.done() or (other.execute(claimed).fetchone() and standby.waiting()))
    assert not ran
    assert waits(standby, call) == "paid"
    assert ran == [1]
    once.close()
