"""Statements that lose against others are tried again, whatever isolation the database prefers."""

import asyncio
import threading
from contextlib import ExitStack

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from oncekey import Once, StoreError
from oncekey.core.requests import Busy, Granted
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import errors
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url

__all__ = ["beside", "colour", "postgres", "postgres_url"]

HOUR = 3_600_000_000
LEVELS = ["repeatable read", "serializable"]
CONFLICTS = ["serialization_failure", "deadlock_detected"]
FAILING = """
    CREATE SEQUENCE tries;
    CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('tries') <= {times} THEN
            RAISE {conflict} USING MESSAGE = 'it lost against another one';
        END IF;
        RETURN NEW;
    END
    $$;
    CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON oncekey_records
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key LIKE 'order-%')
        EXECUTE FUNCTION fails();
"""
"""So many claims fail when they are committed; a sequence counts those too that are rolled back."""


def desk_of(store, key="order-1"):
    return Desk(store, lease=HOUR, ttl=HOUR, key=key)


@pytest.fixture
def prefers(postgres_url, beside):
    """Sets the isolation that the sessions of the database begin with."""
    name = postgres_url.rpartition("/")[2]
    connection = beside(postgres_url)
    setting = f"ALTER DATABASE {name} {{}} default_transaction_isolation"
    yield lambda level: connection.execute(f"{setting.format('SET')} = '{level}'")
    connection.execute(setting.format("RESET"))


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_a_claim_that_lost_is_tried_again(postgres_url, colour, beside, conflict):
    store = colour(postgres_url)
    desk_of(store, "warm").grant("a")
    beside(postgres_url).execute(FAILING.format(times=len(errors.PAUSES), conflict=conflict))
    owner = desk_of(store).grant("a")
    assert desk_of(store).settle(owner) is DONE


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_a_claim_that_loses_all_the_time_did_not_happen(postgres_url, colour, beside, conflict):
    store = colour(postgres_url)
    desk_of(store, "warm").grant("a")
    beside(postgres_url).execute(FAILING.format(times=len(errors.PAUSES) + 1, conflict=conflict))
    with pytest.raises(StoreError, match="it lost against another one") as caught:
        desk_of(store).claim("a")
    assert caught.value.happened is False
    desk_of(store).grant("a")


@pytest.mark.fast_path("claims that share a statement")
async def test_claims_that_share_a_statement_are_tried_again(postgres_url, beside):
    store = AsyncPostgresStore(postgres_url, timeout=PATIENCE)
    await asyncio.gather(*(store.claim(desk_of(None, f"warm-{n}").ask("a")) for n in range(4)))
    beside(postgres_url).execute(FAILING.format(times=3, conflict=CONFLICTS[0]))
    asks = [desk_of(None, f"order-{number}").ask("a") for number in range(4)]
    assert {type(answer) for answer in await asyncio.gather(*map(store.claim, asks))} == {Granted}
    await store.aclose()


@pytest.mark.parametrize("level", LEVELS)
def test_a_claim_whose_key_another_connection_inserts_meanwhile_is_busy(
    postgres_url, beside, prefers, until, level
):
    """On a connection of the caller, whose isolation the store does not choose."""
    prefers(level)
    mine, other, watch = (beside(postgres_url) for _ in range(3))
    store = PostgresStore(mine)
    desk_of(store, "warm").grant("a")
    other.execute("BEGIN")
    other.execute("SELECT oncekey_claim_v1('', 'order-1', 'n', null, %s, %s, false, null, '', '')",
        [HOUR, HOUR])  # fmt: skip
    answers = []
    thread = threading.Thread(target=lambda: answers.append(desk_of(store).claim("a")))
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    until(lambda: watch.execute(waiting).fetchall())
    other.execute("COMMIT")
    thread.join()
    assert [type(answer) for answer in answers] == [Busy]


GIVEN = {
    "a URL": lambda stack, url: url,
    "a pool": lambda stack, url: stack.enter_context(ConnectionPool(url, min_size=4, max_size=8)),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("level", LEVELS)
def test_threads_that_share_keys_run_each_once(postgres_url, prefers, level, given):
    prefers(level)
    ran, told = [], []
    with ExitStack() as stack:
        store = PostgresStore(given(stack, postgres_url), patience=PATIENCE)
        once = Once(store, observers=(), cache=False).options(wait=PATIENCE)

        def work(first):
            for number in range(first, first + 10):
                key = f"k{number % 10}"
                told.append(once.run(key, lambda key=key: ran.append(key) or key))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        once.close()
    assert sorted(ran) == sorted({f"k{number}" for number in range(10)})
    assert len(told) == 80


LOCK = 7886477261459485029
ADVISED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"


@pytest.mark.parametrize("level", LEVELS)
def test_those_who_meet_while_migrating_find_what_the_first_one_has_done(
    postgres_url, beside, prefers, until, level
):
    prefers(level)
    other = beside(postgres_url)
    other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    stores = [PostgresStore(postgres_url, timeout=PATIENCE) for _ in range(3)]
    answers = []
    threads = [
        threading.Thread(target=lambda store=store: answers.append(desk_of(store).claim("a")))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    until(lambda: other.execute(ADVISED).fetchone() == (3,))
    other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
    for thread in threads:
        thread.join()
    assert [type(answer) for answer in answers] == [Granted] * 3  # all have the same nonce
    for store in stores:
        store.close()


def test_sessions_of_the_store_read_what_is_committed(postgres_url, prefers):
    prefers("serializable")
    store = PostgresStore(postgres_url)
    desk_of(store).grant("a")
    (line,) = store.links.here()._lender._idle
    shown = line.connection.execute("SHOW transaction_isolation").fetchone()
    assert shown == ("read committed",)
    store.close()


def test_an_error_of_another_kind_is_not_tried_again():
    with pytest.raises(psycopg.errors.DiskFull):
        errors.pause_after(psycopg.errors.DiskFull(), 1.0)
    assert 0 <= errors.pause_after(psycopg.errors.DeadlockDetected(), 0.5) <= 0.5
