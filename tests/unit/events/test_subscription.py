"""Followers of one job: each gets every event once and in order, however they come, go and dawdle.

Pages are short here, so that everything that happens between two pages happens often.
"""

import asyncio
from contextlib import AsyncExitStack, aclosing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncekey import UnreadableError
from oncekey.events import AsyncBus, Memory, Resync, Stages, subscription
from oncekey.events.cursor import Cursor
from oncekey.events.log import Entry, Position, position
from oncekey.events.subscription import Batch
from tests.patience import PATIENCE

MANY = Stages({"work": (1, 9999)})
JOB = "job-1"
PAGE = 4


@pytest.fixture(autouse=True)
def short_pages(monkeypatch):
    monkeypatch.setattr(subscription, "LIMIT", PAGE)


@pytest.fixture(autouse=True)
def _nobody_looks_unasked(monkeypatch):
    """Who is not woken is too late."""
    monkeypatch.setattr(subscription, "PATIENCE", 2 * PATIENCE)


@pytest.fixture
def bus():
    return AsyncBus(Memory(), domain="scan", stages=MANY)


async def fill(bus, count, start=1):
    for number in range(start, start + count):
        await bus.publish(JOB, "work", number, seq=number)


async def still():
    """Whatever can run without news from outside has run."""
    for _ in range(30):
        await asyncio.sleep(0)


def readers(bus):
    return [one for loop in bus.following._loops.values() for one in loop.values()]


def numbers(batches):
    return [event.seq for batch in batches for event in batch.events]


def looks(bus, monkeypatch):
    """Counts the reads of the log."""
    counted, look = [], bus._log.look

    async def counting(*arguments):
        counted.append(arguments)
        return await look(*arguments)

    monkeypatch.setattr(bus._log, "look", counting)
    return counted


@pytest.mark.row("E5")
async def test_the_log_is_read_once_for_all_who_follow_it(bus, monkeypatch):
    counted = looks(bus, monkeypatch)
    async with AsyncExitStack() as opened:
        crowd = [
            await opened.enter_async_context(bus.following(JOB, Position())) for _ in range(99)
        ]
        await still()
        counted.clear()
        for number in range(1, 11):
            await fill(bus, 1, number)
            assert [numbers(await one.batches()) for one in crowd] == [[number]] * 99
        assert len(counted) == 10
        assert len(readers(bus)) == 1
    assert readers(bus) == []


async def test_what_is_handed_to_all_is_one_object_and_is_encoded_once(bus):
    async with bus.following(JOB, Position()) as one, bus.following(JOB, Position()) as other:
        await fill(bus, 2)
        [mine], [theirs] = await one.batches(), await other.batches()
    assert mine is theirs
    assert mine.frames is theirs.frames
    assert mine.frames.count(b"data: ") == 2


@pytest.mark.row("E5", "E7")
async def test_whoever_joins_catches_up_from_its_own_place(bus):
    await fill(bus, 10)
    seventh = (await bus.read(JOB)).events[6].cursor
    async with bus.following(JOB, Position()) as early, asyncio.timeout(PATIENCE):
        seen = numbers(await early.batches())
        async with bus.following(JOB, Position(seventh)) as late:
            joined = numbers(await late.batches())
            await fill(bus, 1, 11)
            while len(seen) < 11 or len(joined) < 4:
                await still()
                for one, its in ((early, seen), (late, joined)):
                    one.wake()
                    its.extend(numbers(await one.batches()))
            assert len(readers(bus)[0]._at) == 1, "they stand together"
    assert (seen, joined) == (list(range(1, 12)), [8, 9, 10, 11])


@pytest.mark.row("E7")
async def test_what_comes_while_the_log_is_read_is_heard(bus, monkeypatch):
    look = bus._log.look

    async def slowly(*arguments):
        found = await look(*arguments)
        if not found.entries:
            await fill(bus, 1)  # too late for this look
            await still()
        return found

    monkeypatch.setattr(bus._log, "look", slowly)
    async with bus.following(JOB, Position()) as follower, asyncio.timeout(PATIENCE):
        assert numbers(await follower.batches()) == [1]


async def test_one_that_is_too_slow_ends_at_its_place_and_the_others_go_on(bus):
    async with (
        bus.following(JOB, Position(), 3) as slow,
        bus.following(JOB, Position(), 3) as quick,
    ):
        seen = []
        for number in range(1, 7):
            await fill(bus, 1, number)
            seen += numbers(await quick.batches())
        await still()
        assert await slow.batches() == []
        assert slow.slow
        await fill(bus, 1, 7)
        seen += numbers(await quick.batches())
        await still()
        assert await slow.batches() == [], "nothing follows"
    assert seen == list(range(1, 8))


async def test_one_that_reads_an_old_log_slowly_is_not_too_slow(bus):
    """What is there already waits in the log, and not in the queue."""
    await fill(bus, 40)
    async with bus.following(JOB, Position(), 2) as follower:
        seen = []
        while len(seen) < 40:
            await still()
            batches = await follower.batches()
            assert sum(len(batch.events) for batch in batches) <= PAGE
            seen += numbers(batches)
    assert seen == list(range(1, 41))


@pytest.mark.row("E5")
async def test_an_iterator_that_dawdles_misses_nothing(bus):
    async with aclosing(bus.subscribe(JOB)) as watched, asyncio.timeout(PATIENCE):
        coming = asyncio.ensure_future(anext(watched))
        await fill(bus, 1)
        seen = [(await coming).seq]
        for number in range(2, 42):
            await fill(bus, 1, number)
            await still()
        seen += [(await anext(watched)).seq for _ in range(40)]
    assert seen == list(range(1, 42))


async def test_with_the_last_follower_the_reader_ends_and_the_next_has_a_new_one(bus):
    ears = bus._log._log._memory.ears
    for _ in range(2):
        async with bus.following(JOB, Position()):
            await still()
            assert len(ears) == 1
        assert not ears
        assert readers(bus) == []


async def test_whoever_comes_while_a_reader_ends_is_read_for(bus, monkeypatch):
    ends = subscription._Reader.end
    met = []

    async def slowly(reader):
        if not met:
            met.append(asyncio.create_task(come()))
            await met[0]
        await ends(reader)

    async def come():
        async with bus.following(JOB, Position()) as follower:
            await fill(bus, 1)
            return numbers(await follower.batches())

    monkeypatch.setattr(subscription._Reader, "end", slowly)
    async with bus.following(JOB, Position()):
        await still()
    assert await met[0] == [1]
    assert readers(bus) == []


async def test_a_resync_reaches_all_who_stand_there_and_nobody_else(bus):
    await fill(bus, 2)
    epoch, _, _ = (await bus.read(JOB)).cursor
    async with (
        bus.following(JOB, Position()) as sound,
        bus.following(JOB, Position(Cursor(epoch, 2, "00"))) as other,
        bus.following(JOB, position("nonsense", None)) as foreign,
    ):
        found = [
            [(batch.resync, numbers([batch])) for batch in await one.batches()]
            for one in (sound, other, foreign)
        ]
    assert found == [
        [(None, [1, 2])],
        [(Resync("mark"), [1, 2])],
        [(Resync("foreign"), [1, 2])],
    ]


@pytest.mark.row("E7")
async def test_what_a_server_has_lost_is_told_no_more_after_the_resync(bus):
    await fill(bus, 5)
    [job] = bus._log._log._memory.jobs.values()
    async with bus.following(JOB, Position()) as follower:
        seen = []
        while len(seen) < 5:
            seen += numbers(await follower.batches())
        job.entries.pop()
        job.entries.pop()
        job.last = 3
        readers(bus)[0]._wake("")
        [batch] = await follower.batches()
        assert (batch.resync, numbers([batch])) == (Resync("mark"), [1, 2, 3])
        await still()
        readers(bus)[0]._wake("")
        await still()
        assert follower.take() == []


async def test_an_entry_that_is_no_event_is_told_to_those_who_meet_it(bus):
    await fill(bus, 2)
    [job] = bus._log._log._memory.jobs.values()
    job.entries[0] = Entry(1, job.entries[0].mark, 1, b"nonsense")
    first = Position(Cursor(job.epoch, 1, job.entries[0].mark))
    async with (
        bus.following(JOB, Position()) as one,
        bus.following(JOB, Position()) as other,
        bus.following(JOB, first) as past,
    ):
        for follower in (one, other, one):
            with pytest.raises(UnreadableError, match="entry 1 in the log of job 'job-1'"):
                await follower.batches()
        assert numbers(await past.batches()) == [2]


async def test_a_reader_that_breaks_tells_everybody_also_those_who_come_later(bus, monkeypatch):
    def broken(*_):
        raise RuntimeError("no ears")

    monkeypatch.setattr(bus._log, "listening", broken)
    async with bus.following(JOB, Position()) as one:
        with pytest.raises(RuntimeError, match="no ears"):
            await one.batches()
        async with bus.following(JOB, Position()) as other:
            with pytest.raises(RuntimeError, match="no ears"):
                await other.batches()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 2 * PAGE)),
        st.tuples(st.just("join"), st.integers(0, 40)),
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("turn"), st.integers(1, 12)),
    ),
    max_size=30,
)


class Play:
    """A bus, those who follow its only job now, and what each of them must have."""

    def __init__(self, queue):
        self.queue = queue
        self.bus = AsyncBus(Memory(), domain="scan", stages=MANY)
        self.last = 0
        self.present = []

    async def publish(self, count):
        await fill(self.bus, count, self.last + 1)
        self.last += count

    async def join(self, start):
        start = min(start, self.last)
        opened = self.bus.following(JOB, position(None, start), self.queue)
        self.present.append((opened, await opened.__aenter__(), start, []))

    async def turn(self, count):
        for _ in range(count):
            await asyncio.sleep(0)

    async def leave(self, number):
        if number < len(self.present):
            opened, *_ = self.present.pop(number)
            await opened.__aexit__(None, None, None)

    async def take(self, number):
        if number >= len(self.present):
            return
        _, follower, start, seen = self.present[number]
        follower.wake()
        for batch in await follower.batches():
            assert batch.resync is None
            seen.extend(numbers([batch]))
        assert seen == list(range(start + 1, start + 1 + len(seen)))

    async def end(self):
        while self.present:
            _, follower, start, seen = self.present[0]
            for _ in range(self.last):  # each time there is one at least
                if not follower.slow and start + len(seen) != self.last:
                    await still()
                    await self.take(0)
            assert follower.slow or start + len(seen) == self.last
            await self.leave(0)
        assert readers(self.bus) == []


@given(STEPS, st.sampled_from([None, 3]))
@example([("publish", 4), ("join", 4), ("join", 0), ("turn", 12), ("take", 1)], None)
@example([("publish", 4), ("join", 0), ("turn", 12), ("join", 2), ("turn", 12), ("take", 1)], None)
@settings(deadline=None)
def test_whatever_followers_do_each_has_the_log_from_its_place_on(steps, queue):
    """Without a gap, and nothing twice; in the end all of it, but for who was told otherwise."""

    async def play():
        played = Play(queue)
        for what, number in steps:
            await getattr(played, what)(number)
        await played.end()

    asyncio.run(play())


def test_a_batch_of_nothing_but_a_resync_is_one_frame():
    assert Batch(JOB, "", [], Resync("epoch")).frames.count(b"\n\n") == 1


async def test_the_id_of_a_resync_is_the_place_before_what_follows(bus):
    await fill(bus, 2)
    foreign = position("nonsense", None)
    async with bus.following(JOB, foreign) as follower, bus.following("none", foreign) as empty:
        [batch], [nothing] = await follower.batches(), await empty.batches()
    epoch = batch.events[0].cursor.epoch
    assert b"id: %s.0.-\n\n" % epoch.encode() in batch.frames
    assert nothing.frames.endswith(b"id: 0.0.-\n\n")
    assert position("0.0.-", None) == Position()


async def test_those_who_are_ahead_do_not_wait_for_many_who_come_back(bus, monkeypatch):
    """Between two that come back, what is new goes out; and the log is read in small parts."""
    await fill(bus, 40)
    places = [event.cursor for event in (await bus.read(JOB)).events]
    asked, look = [], bus._log.look

    async def slowly(*arguments):
        asked.append(arguments)
        await asyncio.sleep(0)
        return await look(*arguments)

    monkeypatch.setattr(bus._log, "look", slowly)
    async with AsyncExitStack() as opened:
        ahead = await opened.enter_async_context(bus.following(JOB, Position(places[-1])))
        await still()
        asked.clear()
        late = [
            await opened.enter_async_context(bus.following(JOB, Position(place)))
            for place in places[:-1]
        ]
        await asyncio.sleep(0)
        await fill(bus, 1, 41)
        assert numbers(await ahead.batches()) == [41]
        first = len(asked)
        assert first < 10, "they had to wait"
        for number, follower in enumerate(late, 1):
            seen = []
            while len(seen) < 41 - number:
                seen += numbers(await follower.batches())
            assert seen == list(range(number + 1, 42))


async def test_what_was_read_for_one_is_not_read_again_for_another(bus, monkeypatch):
    await fill(bus, 40)
    places = [event.cursor for event in (await bus.read(JOB)).events]
    asked = looks(bus, monkeypatch)
    async with AsyncExitStack() as opened:
        crowd = [
            await opened.enter_async_context(bus.following(JOB, Position(place)))
            for place in places
        ]
        for number, follower in enumerate(crowd[:-1], 1):
            seen = []
            while len(seen) < 40 - number:
                seen += numbers(await follower.batches())
            assert seen == list(range(number + 1, 41))
    # Each place is compared once, and each event read once or twice; not 820 events in pages of 4.
    assert len(asked) < 130
    assert sum(count for *_, count in asked) < 40 * 2 + 130 * PAGE
