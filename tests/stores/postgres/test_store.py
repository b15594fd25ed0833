"""What is PostgreSQL's own about its store: statements, connections, forks and loops."""

import asyncio
import os
import struct
import subprocess
import sys
import threading

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from oncekey import ConfigurationError, Once, UnreadableError
from oncekey.core.requests import Busy, Claim, Granted, Replay, Scan
from oncekey.stores import AsyncPostgresStore, PostgresStore, open_store
from oncekey.stores.adapters import Threaded
from oncekey.stores.connections import PerLoop
from oncekey.stores.postgres.rows import to_answer
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url
from tests.servers.postgres_proxy import Proxy

__all__ = ["beside", "colour", "postgres", "postgres_url"]

SECOND = 1_000_000
PLAIN = "?sslmode=disable&gssencmode=disable"


def desk_of(store, key="order-1", lease=60 * SECOND):
    return Desk(store, lease=lease, ttl=60 * SECOND, key=key)


def lived(desk):
    """One key through every verb that its owner and its keeper have."""
    owner = desk.grant("a")
    assert desk.renew(owner) is DONE
    assert desk.note(owner, b"noted", 1) is DONE
    assert desk.release(owner, hold=True, uncertain=True) is DONE
    held = desk.read()
    assert desk.resolve(held, status="released") is DONE
    again = desk.grant("b")
    assert desk.settle(again) is DONE
    assert type(desk.claim("c")) is Replay
    assert desk.store.scan(Scan()).records == [desk.read()]
    assert desk.store.purge(0, 10) == 0
    assert desk.forget(again) is DONE


def test_a_claim_may_find_that_the_record_before_it_is_gone():
    moment = 1_767_225_600_000_000
    answer = (b"granted", moment.to_bytes(8), None)
    row = struct.pack(">i", 3) + b"".join(
        struct.pack(">ii", 0, -1 if one is None else len(one)) + (one or b"") for one in answer
    )
    ask = Claim(None, "order-1", nonce="n", fingerprint=None, lease=SECOND, ttl=SECOND)
    told = to_answer(row, ask)
    assert type(told) is Granted
    assert (told.now, told.record.token, told.record.nonce) == (moment, moment, "n")


def test_a_label_that_the_server_cannot_keep_stops_no_call(postgres_url):
    once = Once(postgres_url).options(label="a\x00b", reference="half \ud800")
    assert once.run("order-1", lambda: "ran") == "ran"
    assert once.get("order-1").label == "a%00b"
    once.close()


@pytest.fixture
def proxy(postgres):
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


def through(proxy, postgres, url):
    return url.replace(f":{postgres.port}/", f":{proxy.port}/") + PLAIN


@pytest.mark.row("P11")
def test_every_verb_is_one_statement_and_one_round_trip(postgres, postgres_url, proxy, colour):
    store = colour(through(proxy, postgres, postgres_url), size=1)
    lived(desk_of(store, "warm"))  # connected, migrated and prepared
    before = proxy.asked
    lived(desk_of(store))
    # claim renew note release get resolve claim settle claim scan get purge forget
    assert proxy.asked - before == 13


def test_a_lost_reply_is_unknown_and_the_same_question_is_answered(
    postgres, postgres_url, proxy, colour, until
):
    store = colour(through(proxy, postgres, postgres_url), size=1)
    lived(desk_of(store, "warm"))
    desk = desk_of(store)
    proxy.lose_the_next_reply()
    with pytest.raises(Exception, match="lost before the answer") as caught:
        desk.claim("a")
    assert caught.value.happened is None
    owner = desk.grant("a")
    assert (owner.attempt, type(desk.claim("b"))) == (1, Busy)
    proxy.lose_the_next_reply()
    with pytest.raises(Exception, match="lost before the answer") as caught:
        desk.settle(owner)
    assert caught.value.happened is None
    assert desk.settle(owner) is DONE


def test_a_duplicate_writes_nothing(postgres_url, colour, beside):
    desk = desk_of(colour(postgres_url))
    desk.settle(desk.grant("a"))
    desk.claim("b")
    connection = beside(postgres_url)
    version = "SELECT xmin, xmax, ctid FROM oncekey_records"
    before = connection.execute(version).fetchall()
    assert type(desk.claim("c")) is Replay
    assert connection.execute(version).fetchall() == before


def waiting(connection):
    """Whether somebody waits for a lock in this database."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return connection.execute(asked + " AND datname = current_database()").fetchone()[0]


def test_a_lease_starts_when_the_row_is_ours(postgres_url, beside, until, unbound):
    """Somebody inserts the key, takes their time, and takes it back."""
    store = PostgresStore(postgres_url, timeout=PATIENCE)
    desk_of(store, "warm").grant("a")
    other, watch = beside(postgres_url), beside(postgres_url)
    other.execute("BEGIN")
    other.execute(
        "INSERT INTO oncekey_records SELECT scope, 'order-1', status, fingerprint, token, nonce, "
        "attempt, lease_end, result, error, noted, revision, uncertain, label, reference, created, "
        "started, updated, finished, expires, version, due, waited FROM oncekey_records"
    )
    answers = []
    lease = 1000
    thread = threading.Thread(target=lambda: answers.append(desk_of(store).claim("b", lease=lease)))
    thread.start()
    until(lambda: waiting(watch))
    (seen,) = watch.execute("SELECT oncekey_now_v1()").fetchone()
    until(lambda: watch.execute("SELECT oncekey_now_v1()").fetchone()[0] > seen + lease)
    other.execute("ROLLBACK")
    thread.join()
    (answer,) = answers
    assert type(answer) is Granted
    assert answer.now >= seen + lease
    record = answer.record
    assert (record.token, record.lease_end) == (answer.now, answer.now + lease)
    store.close()


def test_purge_passes_over_what_somebody_holds(postgres_url, colour, beside, until):
    store = colour(postgres_url)
    for key in ("a", "b", "c"):
        desk = desk_of(store, key)
        desk.settle(desk.grant("n"), ttl=1)
    other = beside(postgres_url)
    other.execute("BEGIN")
    other.execute("SELECT 1 FROM oncekey_records WHERE key = 'b' FOR UPDATE")
    assert store.purge(0, 10) == 2
    other.execute("ROLLBACK")
    assert store.purge(0, 10) == 1


def test_a_record_of_a_newer_release_is_refused_by_every_verb(postgres_url, colour, beside):
    store = colour(postgres_url)
    desk = desk_of(store)
    owner = desk.grant("a")
    beside(postgres_url).execute("UPDATE oncekey_records SET version = 99")
    uses = [
        desk.read,
        lambda: store.scan(Scan()),
        lambda: desk.claim("b"),
        lambda: desk.renew(owner),
        lambda: desk.note(owner, b"", 1),
        lambda: desk.settle(owner),
        lambda: desk.release(owner),
        lambda: desk.resolve(owner, status="completed"),
        lambda: desk.forget(owner, force=True),
    ]
    for use in uses:
        with pytest.raises(UnreadableError, match="newer release") as caught:
            use()
        assert caught.value.key == "order-1"


# Pools, loops and forks


def test_a_pool_of_the_caller_is_used_and_left_open(postgres_url):
    """It need not commit by itself, nor give tuples."""
    with ConnectionPool(postgres_url, open=True, kwargs={"row_factory": dict_row}) as pool:
        store = PostgresStore(pool)
        lived(desk_of(store))
        assert isinstance(store.as_async(), Threaded)
        store.close()
        assert not pool.closed
        desk_of(store).grant("a")
        with psycopg.connect(postgres_url) as other:
            assert other.execute("SELECT count(*) FROM oncekey_records").fetchone() == (1,)


async def test_an_async_pool_of_the_caller_is_used_and_left_open(postgres_url):
    pool = AsyncConnectionPool(postgres_url, open=False, kwargs={"row_factory": dict_row})
    async with pool:
        store = AsyncPostgresStore(pool)
        assert await store.get(None, "k") is None
        await store.aclose()
        assert not pool.closed
        assert await store.purge(0, 10) == 0


def test_each_loop_has_its_own_connections(postgres_url):
    store = PostgresStore(postgres_url).as_async()

    async def once(nonce):
        return await store.claim(desk_of(None).ask(nonce))

    assert type(asyncio.run(once("a"))) is Granted
    assert type(asyncio.run(once("b"))) is Busy  # the first loop is gone, and was not told
    said = []
    threads = [threading.Thread(target=lambda: said.append(asyncio.run(once("c")))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(one) for one in said] == [Busy, Busy]

    async def close():
        await once("d")
        await store.aclose()

    asyncio.run(close())


def test_only_the_process_that_opened_connections_closes_them(postgres_url):
    store = PostgresStore(postgres_url)
    desk_of(store).grant("a")
    forgotten(store.links.here()._lender)


async def test_only_the_process_whose_loop_opened_connections_closes_them(postgres_url):
    store = AsyncPostgresStore(postgres_url)
    await store.claim(desk_of(None).ask("a"))
    forgotten(store.links.here()._link._lender)


def forgotten(lender):
    (line,) = lender._idle
    lender._born -= 1  # as if a fork lay between
    lender.__del__()
    assert not line.connection.closed
    lender._born += 1
    lender.__del__()
    assert line.connection.closed


FORKING = """
import asyncio, os, sys
from oncekey.stores import PostgresStore
from oncekey.core.requests import Claim
store = PostgresStore(sys.argv[1])
def claim(key, nonce):
    ask = Claim(None, key, nonce=nonce, fingerprint=None, lease=60_000_000, ttl=60_000_000)
    return type(store.claim(ask)).__name__
awaiting = store.as_async()
async def read(key):
    found = await awaiting.get(None, key)
    await awaiting.aclose()
    return found.nonce
def pids():
    return store.links.here()._lender._idle[-1].connection.info.backend_pid
print(claim("k", "parent"), flush=True)
mine = pids()
print(asyncio.run(read("k")), flush=True)
child = os.fork()
if child == 0:
    print(claim("k", "child"), pids() != mine, asyncio.run(read("k")), flush=True)
    store.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(claim("k", "parent"), pids() == mine, flush=True)
store.close()
"""


def test_a_forked_child_has_its_own_connections(postgres_url):
    done = subprocess.run(
        [sys.executable, "-c", FORKING, postgres_url],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.stdout.splitlines() == ["Granted", "parent", "Busy True parent", "Granted True"], (
        done.stderr
    )


async def test_the_front_door_in_both_colours(postgres_url):
    once = Once(postgres_url, cache=False)
    ran = []

    async def work():
        ran.append(1)
        return {"paid": 12}

    assert await once.run_async("k", work) == {"paid": 12}
    assert await asyncio.to_thread(once.run, "k", lambda: ran.append(2)) == {"paid": 12}
    assert ran == [1]
    await once.core.store_async.aclose()
    once.core.store.close()


# What is named


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_url_opens_nothing(scheme):
    store = open_store(f"{scheme}://somebody@nowhere.invalid/db")
    assert isinstance(store, PostgresStore)
    assert store.remote


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (42, "needs a postgresql:// URL"),
        ("postgresql://u:secret@host:port/db?what=1", "cannot be read"),
    ],
)
def test_what_names_no_database_is_refused(given, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        PostgresStore(given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("size", [0, True, "3"])
def test_a_size_is_a_number(size):
    with pytest.raises(ConfigurationError, match="size must be"):
        PostgresStore("postgresql://host/db", size=size)


def test_loops_that_live_keep_their_connections_and_closed_ones_do_not():
    async def here():
        return per_loop.here()

    per_loop = PerLoop(object)
    with asyncio.Runner() as first:
        with asyncio.Runner() as second:
            of_first, of_second = first.run(here()), second.run(here())
            assert first.run(here()) is of_first is not of_second
        with asyncio.Runner() as third:
            third.run(here())
            assert set(per_loop._links) == {first.get_loop(), third.get_loop()}
