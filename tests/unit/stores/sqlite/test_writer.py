"""Claims and settles of a SQLite file that share statements, not only commits."""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncekey import StoreError, UnreadableError
from oncekey.core import machine
from oncekey.core.requests import Busy, Claim, Forget, Granted, Note, Release, Scan, Settle, Verdict
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite.writer import Job
from oncekey.testing import FakeClock
from tests.heavy import HEAVY

pytestmark = pytest.mark.fast_path("what a group commit does")


def a_claim(key="k", nonce="n"):
    return Claim(None, key, nonce=nonce, fingerprint=None, lease=10**8, ttl=10**8)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    made = SQLiteStore(tmp_path / "records.db", clock=clock)
    yield made
    made.close()


def an_end(record, result=b"paid"):
    owner = {"token": record.token, "nonce": record.nonce}
    end = {"status": "completed", "result": result, "error": None, "ttl": 10**8}
    return Settle(record.scope, record.key, **owner, **end)


@pytest.fixture
def said(store):
    """What was said to SQLite since all of this began."""
    store.claim(a_claim("first"))
    statements = []
    store.writer.connection.set_trace_callback(statements.append)
    return statements


def counted(said):
    return {word: sum(text.startswith(word) for text in said) for word in ("BEGIN", "SELECT")}


async def test_many_claims_of_new_keys_and_many_settles_take_one_statement_each(store, clock, said):
    other = store.as_async()
    asks = [a_claim(f"k{n}", f"n{n}") for n in range(40)]
    told = await asyncio.gather(*map(other.claim, asks))
    assert [answer.record for answer in told] == [
        machine.claim(None, ask, clock())[0] for ask in asks
    ]
    assert [store.get(None, ask.key) for ask in asks] == [answer.record for answer in told]
    assert [text.split()[0] for text in said] == ["INSERT"]
    clock.tick(5)
    ends = [an_end(answer.record) for answer in told]
    assert set(await asyncio.gather(*map(other.settle, ends))) == {Verdict.DONE}
    assert [store.get(None, ask.key) for ask in asks] == [
        machine.settle(answer.record, end, clock())[0]
        for answer, end in zip(told, ends, strict=True)
    ]
    assert [text.split()[0] for text in said] == ["INSERT", "UPDATE"]
    await other.aclose()


def test_who_comes_between_reading_and_a_crowd_is_seen(store, said):
    """The key was new when it was read, and is somebody's when the crowd writes."""
    jobs = [store.job(machine.claim, a_claim(f"k{n}"), plain=True) for n in range(20)]
    store.claim(a_claim("k7", nonce="first"))
    said.clear()
    store.writer.commit(jobs)
    assert [type(job.value) for job in jobs] == [*[Granted] * 7, Busy, *[Granted] * 12]
    assert store.get(None, "k7").nonce == "first"
    assert store.get(None, "k8").nonce == "n"
    assert counted(said) == {"BEGIN": 1, "SELECT": 20}


def test_in_a_crowd_only_owners_settle(store, said):
    records = [store.claim(a_claim(f"k{n}")).record for n in range(4)]
    ends = [an_end(record, b"mine") for record in records]
    ends[1].token -= 1
    ends[2].nonce = "another"
    jobs = [store.job(machine.settle, end, plain=True) for end in ends]
    store.writer.commit(jobs)
    lost, done = Verdict.LOST, Verdict.DONE
    assert [job.value for job in jobs] == [done, lost, lost, done]
    assert [store.get(None, f"k{n}").result for n in range(4)] == [b"mine", None, None, b"mine"]
    again = [store.job(machine.settle, ends[number], plain=True) for number in (0, 3)]
    store.writer.commit(again)
    assert [job.value for job in again] == [done, done]


@pytest.mark.parametrize(
    "odd", [{"lease": 2**64}, {"ttl": 2**64}, {"label": "\ud800"}], ids=["lease", "ttl", "label"]
)
async def test_what_sqlite_cannot_hold_spoils_only_its_own_claim(store, odd):
    asks = [a_claim(f"k{n}") for n in range(20)]
    for name, value in odd.items():
        setattr(asks[3], name, value)
    other = store.as_async()
    told = await asyncio.gather(*map(other.claim, asks), return_exceptions=True)
    assert {type(answer) for answer in told[:3] + told[4:]} == {Granted}
    with pytest.raises(StoreError, match="cannot hold") as alone:
        store.claim(asks[3])
    assert (alone.value.happened, told[3].happened) == (False, False)
    assert store.get(None, "k3") is None
    assert type(await other.claim(a_claim("next"))) is Granted
    await other.aclose()


def test_a_record_that_expired_is_settled_by_nobody(store, clock):
    records = [store.claim(a_claim(f"k{n}")).record for n in range(2)]
    clock.tick(records[0].expires - clock())
    jobs = [store.job(machine.settle, an_end(record), plain=True) for record in records]
    store.writer.commit(jobs)
    assert [job.value for job in jobs] == [Verdict.LOST, Verdict.LOST]
    assert store.settle(an_end(records[0])) is Verdict.LOST


def test_two_jobs_about_one_record_keep_their_order(store, clock, said):
    """Whoever is cut off gives back what it asked for, and both may wait for the same commit."""
    leaving = {"error": None, "uncertain": False, "hold": False, "unused": True}
    given_back = Release(
        None, "k", token=clock(), nonce="n", **leaving, counted=False, bare_ttl=10**8, ttl=10**8
    )
    jobs = [
        store.job(machine.claim, a_claim(), plain=True),
        store.job(machine.release, given_back),
        store.job(machine.claim, a_claim("other"), plain=True),
    ]
    store.writer.commit(jobs)
    assert [type(job.value) for job in jobs] == [Granted, Verdict, Granted]
    assert jobs[1].value is Verdict.DONE
    assert store.get(None, "k").status == "released"


def test_what_was_noted_before_the_settle_is_kept(store, said):
    records = [store.claim(a_claim(f"k{n}")).record for n in range(3)]
    owner = {"token": records[1].token, "nonce": records[1].nonce}
    jobs = [store.job(machine.settle, an_end(record), plain=True) for record in records]
    jobs.insert(1, store.job(machine.note, Note(None, "k1", **owner, noted=b"x", revision=1)))
    store.writer.commit(jobs)
    assert {job.value for job in jobs} == {Verdict.DONE}
    assert (store.get(None, "k1").noted, store.get(None, "k1").status) == (b"x", "completed")


async def test_a_record_that_is_there_is_claimed_by_itself(store, clock, said):
    for key in ("a", "b"):
        store.claim(a_claim(key))
    clock.tick(10**9 * 100)  # both have expired
    said.clear()
    other = store.as_async()
    told = await asyncio.gather(*(other.claim(a_claim(key, "new")) for key in ("a", "b", "c")))
    assert {type(answer) for answer in told} == {Granted}
    assert counted(said) == {"BEGIN": 1, "SELECT": 2}
    await other.aclose()


async def test_a_loop_that_is_closed_is_not_remembered(store):
    leader = store.as_async()._leader
    for _ in range(3):
        loop = asyncio.new_event_loop()
        leader._gathered[loop] = []
        loop.close()
    leader.hand(Job(lambda connection, now: 1)).cancel()
    assert list(leader._gathered) == [asyncio.get_running_loop()]
    leader.after_fork()
    leader._pass_on(loop)  # what the parent had called for
    assert leader._thread is None


@pytest.mark.parametrize("number", [2, 7, 8, 9, 16, 17, 63, 64, 65, 150])
def test_a_crowd_of_any_size_is_written(store, clock, number):
    claims = [store.job(machine.claim, a_claim(f"k{n}"), plain=True) for n in range(number)]
    store.writer.commit(claims)
    assert {type(job.value) for job in claims} == {Granted}
    assert [store.get(None, f"k{n}") for n in range(number)] == [job.value.record for job in claims]
    ends = [an_end(job.value.record, b"%d" % n) for n, job in enumerate(claims)]
    jobs = [store.job(machine.settle, end, plain=True) for end in ends]
    store.writer.commit(jobs)
    assert {job.value for job in jobs} == {Verdict.DONE}
    assert [store.get(None, f"k{n}").result for n in range(number)] == [end.result for end in ends]


def test_claims_and_settles_share_a_commit(store, said):
    records = [store.claim(a_claim(f"k{n}")).record for n in range(5)]
    said.clear()
    jobs = [store.job(machine.settle, an_end(record), plain=True) for record in records]
    jobs += [store.job(machine.claim, a_claim(f"new{n}"), plain=True) for n in range(5)]
    store.writer.commit(jobs)
    assert [text.split()[0] for text in said] == ["BEGIN", "INSERT", "UPDATE", "COMMIT"]
    assert store.get(None, "k4").status == "completed"
    assert store.get(None, "new4").status == "running"


# Claims that are read together


async def test_duplicates_of_one_turn_are_read_together_and_write_nothing(store, said):
    for number in range(20):
        store.claim(a_claim(f"k{number}"))
    read, other = [], store.as_async()
    store.get(None, "k0")
    store._reader.set_trace_callback(read.append)
    said.clear()
    told = await asyncio.gather(*(other.claim(a_claim(f"k{n}", "late")) for n in range(20)))
    assert {type(answer) for answer in told} == {Busy}
    assert [answer.record.key for answer in told] == [f"k{n}" for n in range(20)]
    assert (len(read), said) == (1, [])
    await other.aclose()


async def test_a_large_crowd_is_read_in_parts(store):
    for number in range(0, 150, 2):
        store.claim(a_claim(f"k{number}"))
    other = store.as_async()
    told = await asyncio.gather(*(other.claim(a_claim(f"k{n}", "late")) for n in range(150)))
    assert [type(answer) for answer in told] == [Busy, Granted] * 75
    await other.aclose()


async def test_one_claim_alone_is_read_at_once(store):
    store.claim(a_claim())
    other = store.as_async()
    await other.claim(a_claim(nonce="late"))
    for number in range(10):
        claim = other.claim(a_claim(nonce=f"later{number}"))
        with pytest.raises(StopIteration) as told:
            claim.send(None)
        assert type(told.value.value) is Busy
    await other.aclose()


async def test_a_record_that_cannot_be_read_spoils_only_its_own_claim(store):
    for number in range(5):
        store.claim(a_claim(f"k{number}"))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("UPDATE oncekey_records SET version = 99 WHERE key = 'k3'")
    other = store.as_async()
    asks = [a_claim(f"k{n}", "late") for n in range(5)]
    told = await asyncio.gather(*map(other.claim, asks), return_exceptions=True)
    assert [type(answer) for answer in told] == [Busy, Busy, Busy, UnreadableError, Busy]
    await other.aclose()


async def test_a_key_that_sqlite_cannot_hold_spoils_only_its_own_claim(store):
    other = store.as_async()
    asks = [a_claim(key) for key in ("a", "\ud800", "b")]
    told = await asyncio.gather(*map(other.claim, asks), return_exceptions=True)
    assert [type(answer) for answer in told] == [Granted, StoreError, Granted]
    await other.aclose()


async def test_a_read_that_fails_is_told_to_all(store):
    store.get(None, "k")
    store._reader.close()
    other = store.as_async()
    asks = map(other.claim, [a_claim("a"), a_claim("b")])
    told = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(answer) for answer in told] == [StoreError, StoreError]
    assert told[0] is not told[1]
    store._reader = None
    await other.aclose()


NEVER_PURGED = "SELECT * FROM oncekey_records WHERE (expires > 0) <> (due > 0) OR due > expires"
"""What purge would come to too late, or look at for ever."""
KEYS = ("a", "b", "c", "d")
NONCES = ("n1", "n2")
asked = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from(KEYS), st.sampled_from(NONCES)),
    st.tuples(st.sampled_from(("settle", "release", "note", "forget")), st.sampled_from(KEYS)),
)


def an_ask(store, verb, key, nonce="n1"):
    """What an asker who knows the record as it is would say."""
    if verb == "claim":
        return a_claim(key, nonce)
    record = store.get(None, key)
    owner = {"token": record.token if record else 1, "nonce": record.nonce if record else "n1"}
    if verb == "settle":
        return Settle(None, key, **owner, status="completed", result=b"r", error=None, ttl=10**8)
    if verb == "note":
        return Note(None, key, **owner, noted=b"x", revision=1)
    if verb == "forget":
        return Forget(None, key, token=owner["token"], force=True)
    end = {"error": None, "uncertain": False, "hold": False, "unused": False}
    return Release(None, key, **owner, **end, counted=False, bare_ttl=10**8, ttl=10**8)


@settings(max_examples=300 if HEAVY else 20, deadline=None)
@given(batches=st.lists(st.lists(asked, min_size=1, max_size=24), min_size=1, max_size=5))
def test_a_batch_says_and_does_what_its_jobs_would_one_after_the_other(batches):
    """Whatever is in it: the same answers and the same records as a store without short ways."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        made = {"clock": clock, "synchronous": "NORMAL"}
        many = SQLiteStore(Path(folder, "many.db"), **made)
        single = SQLiteStore(Path(folder, "single.db"), **made, fast=False)
        for batch in batches:
            clock.tick(7)
            asks = [(words[0], an_ask(single, *words)) for words in batch]
            jobs = [
                many.job(getattr(machine, verb), ask, plain=verb in ("claim", "settle"))
                for verb, ask in asks
            ]
            many.writer.commit(jobs)
            assert [job.value for job in jobs] == [getattr(single, verb)(ask) for verb, ask in asks]
            assert many.scan(Scan()) == single.scan(Scan())
            assert not [*many.rows(NEVER_PURGED), *single.rows(NEVER_PURGED)]
        many.close()
        single.close()
