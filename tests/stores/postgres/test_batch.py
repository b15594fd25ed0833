"""Claims and settles that share a statement: each is told what it would be told alone.

Another database runs the same tests with a `store`, a `blocking` one, and `Statements` of its own.
"""

import asyncio
from contextlib import contextmanager

import psycopg
import pytest

from oncekey import ConfigurationError, StoreError
from oncekey.core.requests import (
    Busy,
    Claim,
    Granted,
    Held,
    Mismatch,
    Release,
    Replay,
    Settle,
    Spent,
    Verdict,
)
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.crowd import LARGE, LARGEST
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.batch import array
from oncekey.testing.conformance.base import Desk
from tests.patience import PATIENCE, until_async
from tests.servers.postgres_fixtures import beside, postgres, postgres_url

__all__ = ["beside", "postgres", "postgres_url"]

pytestmark = pytest.mark.fast_path("what a crowd does")

MINUTE = 60_000_000
HOUR = 60 * MINUTE


def ask(key, nonce="z", fingerprint="1:a", lease=MINUTE, **more):
    return Claim(None, key, nonce=nonce, fingerprint=fingerprint, lease=lease, ttl=HOUR, **more)


def settle(record, result=b"paid"):
    return Settle(
        None,
        record.key,
        token=record.token,
        nonce=record.nonce,
        status="completed",
        result=result,
        error=None,
        ttl=HOUR,
    )


class Statements:
    """What the server is asked, and what somebody else does there meanwhile."""

    def __init__(self, beside, url):
        self._other = beside(url)

    @staticmethod
    def size(statement, values):
        """How many share it; 0 for a statement of one."""
        if statement not in [crowd for _, crowd in sql.CROWDS]:
            return 0
        return int.from_bytes(values[0][12:16])

    @staticmethod
    def shared(count):
        """How many share each statement when so many come while one asks."""
        return [count]

    @staticmethod
    def key(_statement, values):
        return values[1].decode()

    @contextmanager
    def lock(self, *keys):
        """The rows are locked."""
        with self._other.transaction():
            found = "SELECT 1 FROM oncekey_records WHERE key = ANY (%s) FOR UPDATE"
            assert len(self._other.execute(found, [list(keys)]).fetchall()) == len(keys)
            yield

    @contextmanager
    def lock_all(self):
        with self._other.transaction():
            self._other.execute("LOCK oncekey_records IN ACCESS EXCLUSIVE MODE")
            yield

    @contextmanager
    def insert(self, key):
        """There is a row that is never committed."""
        with self._other.transaction(force_rollback=True):
            self._other.execute(
                "SELECT oncekey_claim_v1('', %s, 'n', null, 1, 1, false, null, '', '')", [key]
            )
            yield

    def held_up(self):
        """The sessions that wait for a lock."""
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return [pid for (pid,) in self._other.execute(waiting).fetchall()]

    def end(self, session):
        self._other.execute("SELECT pg_terminate_backend(%s)", [session])


@pytest.fixture
def statements(beside, postgres_url):
    return Statements(beside, postgres_url)


@pytest.fixture
async def store(postgres_url, unbound):
    store = AsyncPostgresStore(postgres_url, timeout=PATIENCE)
    await store.claim(ask("first"))  # the schema is there, and a connection
    yield store
    await store.aclose()


@pytest.fixture
def blocking(postgres_url):
    """A store of the same records in which nobody shares a statement."""
    store = PostgresStore(postgres_url, fast=False)
    yield store
    store.close()


@pytest.fixture
async def link(store):
    return store.links.here()._link


@pytest.fixture
async def together(link, statements, monkeypatch):
    """How many shared each statement."""
    counts = []
    run = link.run

    async def counted(*asked):
        if size := statements.size(*asked):
            counts.append(size)
        return await run(*asked)

    monkeypatch.setattr(link, "run", counted)
    return counts


@pytest.fixture
async def alone(link, statements, monkeypatch):
    """Which keys had a statement for themselves."""
    keys = []
    run = link.run

    async def seen(*asked):
        if not statements.size(*asked):
            keys.append(statements.key(*asked))
        return await run(*asked)

    monkeypatch.setattr(link, "run", seen)
    return keys


async def crowd(verb, asks):
    return await asyncio.gather(*map(verb, asks), return_exceptions=True)


async def test_those_who_come_while_one_asks_share_a_statement(store, statements, together):
    answers = await crowd(store.claim, [ask(f"k{n}") for n in range(64)])
    assert {type(answer) for answer in answers} == {Granted}
    assert [answer.record.key for answer in answers] == [f"k{n}" for n in range(64)]
    assert together == statements.shared(63)
    ends = await crowd(store.settle, [settle(answer.record) for answer in answers])
    assert set(ends) == {Verdict.DONE}
    assert together == statements.shared(63) * 2
    replays = await crowd(store.claim, [ask(f"k{n}") for n in range(64)])
    assert {type(answer) for answer in replays} == {Replay}
    assert {answer.record.result for answer in replays} == {b"paid"}


async def test_a_large_crowd_comes_in_parts(store, together):
    answers = await crowd(store.claim, [ask(f"k{n}") for n in range(4 * LARGEST + 2)])
    assert {type(answer) for answer in answers} == {Granted}
    assert together == [LARGEST] * 4


def put_into(store, prefix, key):
    """A record in each state; the names say which."""
    desk = Desk(store, lease=MINUTE, ttl=HOUR, key=f"{prefix}-{key}")
    if key == "new":
        return
    owner = desk.grant("a", fingerprint="1:a")
    if key == "completed":
        desk.settle(owner)
    elif key == "released":
        desk.release(owner)
    elif key == "held":
        desk.release(owner, uncertain=True, hold=True)


STATES = ("new", "running", "completed", "released", "held")
WAYS = {
    "other": {"nonce": "z"},
    "same nonce": {"nonce": "a"},
    "other fingerprint": {"fingerprint": "1:b"},
    "other version": {"fingerprint": "2:b"},
    "no fingerprint": {"fingerprint": None},
    "last attempt": {"max_attempts": 1},
    "holding": {"on_expired": "hold"},
}


@pytest.mark.parametrize("way", WAYS)
async def test_in_a_crowd_everybody_is_told_what_each_is_told_alone(store, blocking, way):
    for prefix in ("alone", "crowd"):
        for state in STATES:
            await asyncio.to_thread(put_into, blocking, prefix, state)
    expected = [
        await asyncio.to_thread(blocking.claim, ask(f"alone-{state}", **WAYS[way]))
        for state in STATES
    ]
    told = await crowd(
        store.claim, [ask("in front"), *(ask(f"crowd-{state}", **WAYS[way]) for state in STATES)]
    )
    for one, other in zip(expected, told[1:], strict=True):
        assert type(one) is type(other)
        kept = ("status", "fingerprint", "attempt", "nonce", "uncertain", "label", "noted")
        assert [getattr(one.record, name) for name in kept] == [
            getattr(other.record, name) for name in kept
        ]


async def test_every_answer_occurs_in_these(store, blocking):
    for state in STATES:
        await asyncio.to_thread(put_into, blocking, "crowd", state)
    asks = [ask("in front"), *(ask(f"crowd-{state}") for state in STATES)]
    told = {type(answer) for answer in await crowd(store.claim, asks)}
    assert told == {Granted, Busy, Replay, Held}
    asks = [ask("next"), ask("crowd-completed", fingerprint="1:b"), ask("crowd-held")]
    assert [type(answer) for answer in await crowd(store.claim, asks)] == [Granted, Mismatch, Held]


async def test_a_claim_that_was_given_back_is_spent(store):
    alone = await store.claim(ask("k", nonce="a"))
    await store.release(_release(alone.record))
    told = await crowd(store.claim, [ask("front"), ask("k", nonce="a"), ask("other")])
    assert [type(answer) for answer in told] == [Granted, Spent, Granted]


def _release(record):
    return Release(
        None,
        record.key,
        token=record.token,
        nonce=record.nonce,
        error=None,
        uncertain=False,
        hold=False,
        unused=False,
        counted=False,
        bare_ttl=MINUTE,
        ttl=HOUR,
    )


async def test_the_same_key_is_never_twice_in_one_statement(store, together):
    asks = [ask("k", nonce=f"n{number}") for number in range(10)]
    told = await crowd(store.claim, [ask("front"), *asks, ask("other")])
    assert [type(answer) for answer in told] == [Granted, Granted, *[Busy] * 9, Granted]
    assert together == [2]


async def test_owners_who_are_none_are_told_so(store):
    mine = (await store.claim(ask("k"))).record
    ends = [
        settle((await store.claim(ask("front"))).record),
        settle(mine),
        Settle(
            None,
            "nobody's",
            token=1,
            nonce="z",
            status="completed",
            result=None,
            error=None,
            ttl=HOUR,
        ),
    ]
    told = await crowd(store.settle, ends)
    assert told == [Verdict.DONE, Verdict.DONE, Verdict.LOST]
    stale = settle((await store.claim(ask("stale"))).record)
    stale.token -= 1
    told = await crowd(store.settle, [*ends[:2], stale])
    assert told == [Verdict.DONE, Verdict.DONE, Verdict.LOST]
    among_owners = [settle((await store.claim(ask(f"k{n}"))).record) for n in range(3)]
    among_owners[2].token -= 1
    told = await crowd(store.settle, among_owners)
    assert told == [Verdict.DONE, Verdict.DONE, Verdict.LOST]


async def test_the_slow_way_is_a_statement_for_each(blocking, statements, monkeypatch):
    await asyncio.to_thread(blocking.claim, ask("first"))
    other = blocking.as_async()
    link = other.links.here()._link
    run, asked = link.run, []

    async def seen(*statement):
        asked.append(statements.size(*statement))
        return await run(*statement)

    monkeypatch.setattr(link, "run", seen)
    answers = await crowd(other.claim, [ask(f"k{n}") for n in range(8)])
    assert {type(answer) for answer in answers} == {Granted}
    assert asked == [0] * 8
    await other.aclose()


@pytest.mark.parametrize("store", [PostgresStore, AsyncPostgresStore])
@pytest.mark.parametrize("fast", [None, 1, "no"])
def test_fast_is_true_or_false(store, fast):
    with pytest.raises(ConfigurationError, match=f"fast must be True or False, not {fast!r}"):
        store("postgresql://localhost:1/none", fast=fast)


async def test_after_a_crowd_those_of_one_turn_of_the_loop_share_a_statement(store, together):
    await crowd(store.claim, [ask(f"k{n}") for n in range(3)])
    assert together == [2]
    await crowd(store.claim, [ask(f"m{n}") for n in range(3)])
    assert together == [2, 3]


async def test_after_a_crowd_whoever_comes_alone_asks_alone(store, together, alone):
    await crowd(store.claim, [ask(f"k{n}") for n in range(3)])
    alone.clear()
    leaving = asyncio.create_task(store.claim(ask("leaves")))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    for key in ("one", "other"):
        assert isinstance(await store.claim(ask(key)), Granted)
    assert alone == ["one", "other"]
    assert together == [2]


async def test_a_crowd_wakes_those_who_wait_for_its_records(store, together):
    records = [answer.record for answer in await crowd(store.claim, map(ask, map(str, range(4))))]
    waiting = asyncio.create_task(store.watch(None, "2", records[2].token, 2 * PATIENCE))
    await until_async(lambda: _waited(store))
    together.clear()
    assert set(await crowd(store.settle, map(settle, records))) == {Verdict.DONE}
    await asyncio.wait_for(waiting, PATIENCE)
    assert together == [3]


async def _waited(store):
    marked = sql.statement("SELECT int8send(waited) FROM oncekey_records WHERE key = '2'", 0)
    (mark,) = await store.links.here()._link.run(marked, ())
    return any(mark)


async def test_a_crowd_goes_by_the_primary_key_whatever_the_table_was_like(
    store, beside, postgres_url
):
    """Its plans are made on an empty table, and kept."""
    other = beside(postgres_url)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncekey'"

    async def scans():
        await store.aclose()  # what a session has counted is known when it is over
        await until_async(lambda: other.execute(sessions).fetchone() == (0,))
        other.execute("SELECT pg_stat_clear_snapshot()")
        found = (
            "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'oncekey_records'"
        )
        return other.execute(found).fetchone()

    whole, by_key = await scans()
    for turn in range(8):  # past the plans that a session makes for each call anew
        mine = [ask(f"{turn}-{n}") for n in range(4)]
        records = [answer.record for answer in await crowd(store.claim, mine)]
        assert await crowd(store.settle, map(settle, records)) == [Verdict.DONE] * 4
        again = await crowd(store.claim, mine)
        assert {type(answer) for answer in again} == {Replay}
    later, more_by_key = await scans()
    assert later == whole
    assert more_by_key > by_key + 60


# One among many


async def all_but_the_eighth(tasks):
    """Their answers, which come while it waits."""
    told = await asyncio.wait_for(asyncio.gather(*tasks[:7], *tasks[8:]), PATIENCE)
    assert not tasks[7].done()
    return told


async def test_a_row_that_somebody_holds_keeps_nobody_else_waiting(store, alone, statements):
    records = [answer.record for answer in await crowd(store.claim, map(ask, map(str, range(16))))]
    alone.clear()
    with statements.lock("7"):
        ends = [asyncio.create_task(store.settle(settle(record))) for record in records]
        assert set(await all_but_the_eighth(ends)) == {Verdict.DONE}
    assert await ends[7] is Verdict.DONE
    assert alone == ["0", "7"]  # the first, and the one that is held


async def blocked_claim(store, key):
    await store.claim(ask(key, nonce="a", lease=1))  # which is over: the next claim takes over
    return store.claim(ask(key, nonce="b"))


async def blocked_settle(store, key):
    return store.settle(settle((await store.claim(ask(key))).record))


@pytest.mark.parametrize("blocked", [blocked_claim, blocked_settle])
@pytest.mark.parametrize("several", [1, 3])
async def test_who_waits_for_a_row_delays_nobody_who_comes_later(
    store, statements, blocked, several
):
    """Neither the one who asks alone, nor those who share a statement."""
    locked = [f"locked-{number}" for number in range(several)]
    verbs = [await blocked(store, key) for key in locked]
    mine = (await store.claim(ask("mine"))).record
    with statements.lock(*locked):
        first = [asyncio.create_task(verb) for verb in verbs]
        await until_async(statements.held_up)
        later = [asyncio.create_task(store.claim(ask(f"k{number}"))) for number in range(16)]
        later.append(asyncio.create_task(store.settle(settle(mine))))
        done, _ = await asyncio.wait(later, timeout=PATIENCE)
        assert len(done) == len(later)
        assert not any(task.done() for task in first)
    await asyncio.gather(*first)


async def test_an_insert_that_somebody_has_not_committed_sends_all_to_ask_alone(store, statements):
    with statements.insert("7"):
        claims = [asyncio.create_task(store.claim(ask(str(number)))) for number in range(16)]
        assert {type(answer) for answer in await all_but_the_eighth(claims)} == {Granted}
    assert isinstance(await claims[7], Granted)


async def test_a_value_that_postgresql_does_not_take_spoils_only_its_own_claim(store):
    asks = [ask(f"k{n}", label="\0" if n == 3 else "fine") for n in range(8)]
    told = await crowd(store.claim, asks)
    assert isinstance(told[3], (StoreError, ConfigurationError))
    assert {type(answer) for answer in told[:3] + told[4:]} == {Granted}


async def test_a_large_result_does_not_travel_with_others(store, together):
    records = [answer.record for answer in await crowd(store.claim, map(ask, map(str, range(4))))]
    together.clear()
    ends = [settle(record, bytes(LARGE) if n == 2 else b"") for n, record in enumerate(records)]
    assert await crowd(store.settle, ends) == [Verdict.DONE] * 4
    assert together == [2]


async def test_a_short_lease_is_not_handed_out_half_over(store, monkeypatch):
    told = await crowd(store.claim, [ask("front"), *(ask(f"k{n}", lease=1) for n in range(4))])
    assert {type(answer) for answer in told} == {Granted}


async def test_whoever_goes_away_leaves_the_others_their_answers(store):
    claims = [asyncio.create_task(store.claim(ask(f"k{n}"))) for n in range(8)]
    await asyncio.sleep(0)
    claims[0].cancel()
    claims[3].cancel()
    told = await asyncio.gather(*claims, return_exceptions=True)
    assert {type(told[0]), type(told[3])} == {asyncio.CancelledError}
    assert {type(answer) for n, answer in enumerate(told) if n not in {0, 3}} == {Granted}
    assert isinstance(await store.claim(ask("next")), Granted)


async def test_a_connection_that_breaks_leaves_its_crowd_in_doubt(store, statements):
    with statements.lock_all():
        claims = [asyncio.create_task(store.claim(ask(f"k{n}"))) for n in range(8)]
        found = await until_async(statements.held_up)
        statements.end(found[0])
        first = (await asyncio.wait(claims, return_when="FIRST_COMPLETED"))[0]
    told = await asyncio.gather(*claims, return_exceptions=True)
    (broken,) = first
    assert broken.exception().happened is None
    assert [type(answer) for answer in told if answer is not broken.exception()] == [Granted] * 7


async def test_a_crowd_whose_answer_is_lost_is_in_doubt_as_a_whole(
    store, link, statements, monkeypatch
):
    run = link.run

    async def lost(*asked):
        answer = await run(*asked)
        if statements.size(*asked):
            msg = "the answer was lost"
            raise StoreError(msg, happened=None)
        return answer

    monkeypatch.setattr(link, "run", lost)
    told = await crowd(store.claim, [ask(f"k{n}") for n in range(4)])
    assert isinstance(told[0], Granted)
    assert {error.happened for error in told[1:]} == {None}
    assert len({id(error) for error in told[1:]}) == 3
    monkeypatch.undo()
    again = await crowd(store.claim, [ask(f"k{n}") for n in range(4)])  # with the same nonce
    assert {type(answer) for answer in again} == {Granted}


async def test_what_is_wrong_with_the_configuration_is_told_to_all(
    store, link, statements, monkeypatch
):
    run = link.run

    async def refuses(*asked):
        if statements.size(*asked):
            raise ConfigurationError("upgrade the server")
        return await run(*asked)

    monkeypatch.setattr(link, "run", refuses)
    asking = [asyncio.create_task(store.claim(ask(f"k{n}"))) for n in range(4)]
    await asyncio.sleep(0)
    asking[3].cancel()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in told[1:3]] == [ConfigurationError, ConfigurationError]


async def test_a_crowd_that_is_cut_off_is_in_doubt(store, link, statements, monkeypatch):
    run, inside, before = link.run, asyncio.Event(), asyncio.all_tasks()

    async def stands_still(*asked):
        if statements.size(*asked):
            inside.set()
            await asyncio.Event().wait()
        return await run(*asked)

    monkeypatch.setattr(link, "run", stands_still)
    asking = [asyncio.create_task(store.claim(ask(f"k{n}"))) for n in range(4)]
    await inside.wait()
    asking[3].cancel()
    await asyncio.sleep(0)
    (batch,) = asyncio.all_tasks() - before - {*asking}
    batch.cancel()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [getattr(one, "happened", type(one)) for one in told] == [
        Granted,
        None,
        None,
        asyncio.CancelledError,
    ]


@pytest.mark.parametrize(
    ("kind", "values", "read"),
    [
        ("text", [b"a", None, b""], ["a", None, ""]),
        ("text", [b"a" * 300, b"b", b"c" * 255], ["a" * 300, "b", "c" * 255]),
        ("text", [b"same", b"same"], ["same", "same"]),
        ("text", [None, None], [None, None]),
        ("bigint", [(7).to_bytes(8), (-1).to_bytes(8, signed=True)], [7, -1]),
        ("boolean", [b"\x01", b"\x00", None], [True, False, None]),
        ("bytea", [b"\x00\xff", None], [b"\x00\xff", None]),
    ],
)
def test_an_array_is_read_as_it_was_meant(postgres_url, kind, values, read):
    with psycopg.connect(postgres_url) as connection:
        result = connection.pgconn.exec_params(
            f"SELECT $1::{kind}[]".encode(), [array(kind, tuple(values))], param_formats=[1]
        )
        text = result.get_value(0, 0).decode()
        [(found,)] = connection.execute(f"SELECT %s::{kind}[]", [text])
    assert found == read
