"""Several jobs that are followed together: their queue is bounded, and none holds up another."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from oncekey import UnreadableError
from oncekey.events import AsyncBus, InvalidEventError, Memory, Resync, Stages, join_cursors
from oncekey.events.bundle import Bundle, JobsAndTopics, names_of
from oncekey.events.log import BUDGET, Position
from oncekey.events.sse import MOST_NAMES, Places
from tests.patience import PATIENCE

MANY = Stages({"work": (1, 9999)})


@pytest.fixture
def bus():
    return AsyncBus(Memory(), domain="scan", stages=MANY)


async def still():
    """Whatever can run without news from outside has run."""
    for _ in range(200):
        await asyncio.sleep(0)


async def taken(bus, names, count, **options):
    """The first so many things that a subscription yields."""
    found = []
    async with asyncio.timeout(PATIENCE), aclosing(bus.subscribe_many(names, **options)) as many:
        async for job, one in many:
            found.append((job, one if isinstance(one, Resync) else one.seq))
            if len(found) == count:
                break
    return found


async def test_python_follows_several_jobs_and_a_topic(bus):
    for job in ("a", "b", "order/1"):
        for number in (1, 2, 3):
            await bus.publish(job, "work", None, seq=number)
    found = await taken(bus, ["a", "b", "order/*"], 9)
    for job in ("a", "b", "order/1"):
        assert [one for name, one in found if name == job] == [1, 2, 3]
    cursors = {job: (await bus.read(job)).events[1].cursor for job in ("a", "order/1")}
    found = await taken(bus, ["a", "b", "order/*"], 5, after=cursors)
    assert sorted(found) == [("a", 3), ("b", 1), ("b", 2), ("b", 3), ("order/1", 3)]
    found = await taken(bus, iter(["a", "b"]), 7, after={"a": "ab.1.cd"})
    assert [one for name, one in found if name == "a"] == [Resync("epoch"), 1, 2, 3]


async def test_python_is_told_of_a_job_that_cannot_be_read(bus):
    await bus.publish("a", "work", None, seq=1)
    kept = bus._log._log._memory.jobs["scan", "a"]
    kept.entries[0] = kept.entries[0]._replace(payload=b"no event")
    with pytest.raises(UnreadableError, match="'a' cannot be followed: unreadable"):
        await taken(bus, ["a", "b"], 1)


def test_names_are_jobs_or_topics():
    assert names_of(["a", "t/*", "a", "t/1", "t/*"]) == JobsAndTopics(("a", "t/1"), ("t",))
    for wrong in ([], ["/*"], ["a/b/*"], [""], ["\ud800"], [None], ["x" * 513]):
        with pytest.raises(InvalidEventError):
            names_of(wrong)


def test_cursors_that_are_none_or_too_many_are_refused():
    with pytest.raises(InvalidEventError, match="the cursor of job 'a' is none: 'nonsense'"):
        join_cursors({"a": "nonsense"})
    with pytest.raises(InvalidEventError, match="by job id"):
        join_cursors(["ab.1.cd"])
    with pytest.raises(InvalidEventError, match=f"room for the cursors of {MOST_NAMES} jobs"):
        join_cursors({str(n): "ab.1.cd" for n in range(MOST_NAMES + 1)})


def test_the_longest_id_of_as_many_jobs_as_can_be_named_fits():
    jobs = [f"job-{n}" for n in range(MOST_NAMES)]
    longest = f"{'f' * 32}.{10**13 - 1}.{'f' * 8}"
    text = join_cursors(dict.fromkeys(jobs, longest))
    assert 4000 < len(text) <= 4096
    places = Places(jobs, text)
    assert [places.start(job).cursor.offset for job in jobs] == [10**13 - 1] * MOST_NAMES
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text("utf-8")
    assert f"enough for {MOST_NAMES} named jobs and topics" in page


async def test_what_waits_for_a_client_is_bounded_for_all_its_jobs_together(bus):
    jobs = [f"job-{n}" for n in range(8)]
    for job in jobs:
        for number in range(1, 5):
            await bus.publish(job, "work", "x" * 200_000, seq=number)
    bundle = Bundle(bus.following, bus.topics, names_of(jobs), lambda _: Position())
    seen = {job: [] for job in jobs}
    async with asyncio.timeout(PATIENCE), bundle:
        while not all(len(events) == 4 for events in seen.values()):
            await still()
            waiting = sum(follower._size for follower, _ in bundle._jobs.values())
            assert 0 < waiting <= BUDGET + 300_000
            for job, batch, _ in await bundle.changes():
                seen[job] += [] if batch is None else [event.seq for event in batch.events]
        assert bundle._room._size == bundle._room._count == 0
    assert seen == {job: [1, 2, 3, 4] for job in jobs}


async def test_what_waits_of_a_job_is_dropped_with_a_no(bus):
    answers = {"a": 1000.0, "b": 1000.0}

    async def allowed(job):
        return answers[job]

    names = names_of(["a", "b"])
    bundle = Bundle(bus.following, bus.topics, names, lambda _: Position(), allowed=allowed)
    async with asyncio.timeout(PATIENCE), bundle:
        assert [one.job for one in await bundle.changes()] == ["a", "b"]
        for job in ("a", "b"):
            await bus.publish(job, "work", None, seq=1)
        await still()
        assert bundle._room._count == 2, "both wait"
        answers["a"] = 0.0
        bundle._due["a"] = 0.0  # its time is over
        found = await bundle.changes()
        assert [(one.job, one.refused) for one in found] == [("b", None), ("a", "forbidden")]
        assert list(bundle._jobs) == ["b"]


async def test_a_job_that_leaves_gives_its_room_back(bus):
    await bus.publish("a", "work", "x" * 200_000, seq=1)
    bundle = Bundle(bus.following, bus.topics, names_of(["a", "b"]), lambda _: Position())
    async with asyncio.timeout(PATIENCE), bundle:
        await still()
        assert bundle._room._count == 1
        await bundle._leave("a")
        assert bundle._room._count == 0
