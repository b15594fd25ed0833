"""Reading from a cursor, watching, and the state of a job: on every bus and in both colours."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing

import pytest

from oncekey.events import Bus, Cursor, Event, InvalidEventError, Memory, Resync, Stages
from tests.events.ways import collected
from tests.patience import PATIENCE

MANY = Stages({"work": (0, 9999)})


async def fill(bus, count, job="job-1", start=0):
    for number in range(start, start + count):
        await bus.publish(job, "work", number, seq=number)


def numbers(found):
    return [one.data if isinstance(one, Event) else one for one in found]


@pytest.mark.row("E5")
async def test_a_reader_goes_on_after_what_it_saw_last(system):
    bus = system.bus(stages=MANY)
    await fill(bus, 10)
    page = await bus.read("job-1", limit=4)
    seen = numbers(page.events)
    while page.events:
        page = await bus.read("job-1", after=str(page.cursor), limit=4)
        assert page.resync is None
        seen += numbers(page.events)
    assert seen == list(range(10))
    assert page.cursor == (await bus.read("job-1")).events[-1].cursor


async def test_an_event_comes_back_as_it_was_published(system):
    bus = system.bus()
    published = await bus.publish("job-é", "done", {"text": "å", "list": [1, None]}, seq=51)
    [event] = (await bus.read("job-é")).events
    assert event.identity == ("scan", "job-é", "done", 51)
    assert event.data == {"text": "å", "list": [1, None]}
    assert event.id.startswith(f"{published.epoch}.1.")
    assert bus is not None
    assert Stages().is_final(event.seq)


@pytest.mark.row("E5")
@pytest.mark.parametrize(("last_seq", "expected"), [(0, [1, 2, 3]), (1, [2, 3]), (3, [])])
async def test_a_reader_may_name_the_number_that_it_saw_last(system, last_seq, expected):
    bus = system.bus(stages=MANY)
    await fill(bus, 4)
    page = await bus.read("job-1", last_seq=last_seq)
    assert (numbers(page.events), page.resync) == (expected, None)
    await fill(bus, 1, start=4)
    assert numbers((await bus.read("job-1", after=page.cursor)).events) == [4]


@pytest.mark.row("E5")
@pytest.mark.parametrize(
    ("last_seq", "expected"), [(0, [30, 10, 20]), (15, [30, 20]), (20, [30]), (77, [])]
)
async def test_every_event_above_a_number_comes_whether_or_not_the_number_exists(
    system, last_seq, expected
):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    for seq in (30, 10, 20):
        await bus.publish("job-1", "work", seq, seq=seq)
    page = await bus.read("job-1", last_seq=last_seq, limit=1)
    found = numbers(page.events)
    while page.events:
        page = await bus.read("job-1", after=page.cursor, limit=1)
        found += [one.data for one in page.events if one.seq > last_seq]
    assert (found, page.resync) == (expected, None)
    await bus.publish("job-1", "work", 5, seq=5)
    await bus.publish("job-1", "work", 99, seq=99)
    await asyncio.to_thread(system.routed)
    watched = await collected(watcher, "job-1", len(expected) + 1, last_seq=last_seq)
    assert (
        numbers(watched)
        == ([*expected, 5, 99] if last_seq < 5 else [*expected, 99])[: len(expected) + 1]
    )


@pytest.mark.row("E5")
async def test_events_that_are_gone_count_when_a_number_is_named(system):
    bus = system.bus(stages=MANY, log_length=10)
    for seq in (500, *range(100, 112)):
        await bus.publish("job-1", "work", seq, seq=seq)
    assert (await bus.read("job-1", last_seq=499)).resync == Resync("trimmed")
    page = await bus.read("job-1", last_seq=500)
    assert (page.events, page.resync) == ([], None)


@pytest.mark.parametrize(
    "after",
    ["", "nonsense", "1.2", "xe.1.a", "ab.01.cd", "ab.1.cd.ef", "ab.99999999999999.cd", "0-0"],
)
async def test_a_cursor_that_is_none_of_ours_is_a_resync(system, after):
    bus = system.bus(stages=MANY)
    await fill(bus, 2)
    page = await bus.read("job-1", after=after)
    assert page.resync == Resync("foreign")
    assert numbers(page.events) == [0, 1]


async def test_a_cursor_of_another_epoch_mark_or_future_is_a_resync(system):
    bus = system.bus(stages=MANY)
    await fill(bus, 3)
    epoch, offset, mark = (await bus.read("job-1")).events[1].cursor
    for cursor, reason in [
        (Cursor("0" * 16, offset, mark), "epoch"),
        (Cursor(epoch, offset, "00"), "mark"),
        (Cursor(epoch, 4, mark), "mark"),
        (Cursor(epoch, 4), "mark"),
    ]:
        page = await bus.read("job-1", after=cursor)
        assert (page.resync, numbers(page.events)) == (Resync(reason), [0, 1, 2])
    assert (await bus.read("job-1", after=Cursor(epoch, 0))).resync is None


async def test_a_job_without_a_log_has_nothing_but_a_cursor_into_it_is_a_resync(system):
    bus = system.bus()
    assert await bus.read("job-1") == ([], None, None)
    assert await bus.read("job-1", last_seq=0) == ([], None, None)
    assert await bus.read("job-1", after="ab.1.cd") == ([], None, Resync("epoch"))
    assert await bus.read("job-1", last_seq=3) == ([], None, None)
    assert await bus.state("job-1") is None


async def test_what_a_log_no_longer_has_is_a_resync_and_never_a_gap(system):
    bus = system.bus(stages=MANY, log_length=100)
    await fill(bus, 1)
    early = (await bus.read("job-1")).cursor
    await fill(bus, 399, start=1)
    page = await bus.read("job-1", after=early, limit=1000)
    assert page.resync == Resync("trimmed")
    left = numbers(page.events)
    assert 100 <= len(left) < 400
    assert left == list(range(400 - len(left), 400))
    assert (await bus.read("job-1")).resync == Resync("trimmed")
    assert (await bus.read("job-1", last_seq=1)).resync == Resync("trimmed")
    assert (await bus.read("job-1", last_seq=350)).resync is None
    first = page.events[0].cursor
    assert (await bus.read("job-1", after=first)).resync is None
    before = Cursor(first.epoch, first.offset - 1)
    assert (await bus.read("job-1", after=before)).resync is None


@pytest.mark.parametrize(
    "options",
    [
        {"last_seq": -1},
        {"last_seq": True},
        {"after": "x", "last_seq": 1},
        {"after": 1},
        {"after": b"ab.1.cd"},
    ],
)
async def test_a_question_that_makes_no_sense_is_an_error(system, options):
    with pytest.raises(InvalidEventError):
        await system.bus().read("job-1", **options)
    with pytest.raises(InvalidEventError):
        system.watcher().subscribe("job-1", **options)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "10"])
async def test_a_page_has_room_for_one_event_at_least(system, limit):
    with pytest.raises(InvalidEventError, match="limit is a whole number above zero"):
        await system.bus().read("job-1", limit=limit)


@pytest.mark.row("E3")
async def test_the_state_is_the_event_with_the_greatest_seq(system):
    bus = system.bus(stages=MANY)
    for seq in (3, 1, 7, 5):
        await bus.publish("job-1", "work", seq, seq=seq)
        system.routed()
    state = await bus.state("job-1")
    assert (state.data, state.offset) == (7, 3)
    assert numbers((await bus.read("job-1", after=state.cursor)).events) == [5]


@pytest.mark.row("E5")
async def test_a_watcher_gets_what_was_there_and_what_comes(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    await fill(bus, 3)
    async with aclosing(watcher.subscribe("job-1")) as watched:
        seen = [await anext(watched) for _ in range(3)]
        coming = asyncio.ensure_future(anext(watched))
        await fill(bus, 1, start=3)
        system.routed()
        seen.append(await coming)
    assert numbers(seen) == [0, 1, 2, 3]


async def test_a_watcher_may_come_before_the_job(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    coming = asyncio.ensure_future(collected(watcher, "job-1", 2))
    await asyncio.sleep(0)
    await fill(bus, 1, job="job-2")
    await fill(bus, 2)
    system.routed()
    assert numbers(await coming) == [0, 1]


async def test_a_watcher_reads_a_long_log_in_parts(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    await fill(bus, 1100)
    assert numbers(await collected(watcher, "job-1", 1100)) == list(range(1100))


async def test_a_watcher_whose_place_is_gone_is_told_and_gets_the_rest(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    await fill(bus, 2)
    found = await collected(watcher, "job-1", 3, after="ab.1.cd")
    assert numbers(found) == [Resync("epoch"), 0, 1]


@pytest.mark.row("E5")
async def test_a_watcher_gets_a_late_event_with_a_smaller_number(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    for seq in (30, 10, 20):
        await bus.publish("job-1", "work", seq, seq=seq)
    assert numbers(await collected(watcher, "job-1", 3)) == [30, 10, 20]


@pytest.mark.row("E7")
async def test_a_reader_that_was_away_is_not_hurt_by_what_other_jobs_did(system):
    """Catching up from the last entries of a shared stream would find nothing here."""
    bus = system.bus(stages=MANY, length=50, most=100_000)
    await fill(bus, 3)
    seen = (await bus.read("job-1")).cursor
    await fill(bus, 2, start=3)
    for number in range(40):
        drafts = [(f"other-{number}", "work", n, n) for n in range(20)]
        assert all(await bus.publish_batch(drafts))
        system.routed(length=50)
    page = await bus.read("job-1", after=seen)
    assert (numbers(page.events), page.resync) == ([3, 4], None)


@pytest.mark.row("E5")
@pytest.mark.parametrize("place", ["memory", "redis"])
def test_blocking_code_may_watch_too(place, request, monkeypatch):
    """Each event once and in order, those that come while it waits too; nobody looks unasked."""
    monkeypatch.setattr("oncekey.events.tail.PATIENCE", 2 * PATIENCE)
    where = Memory() if place == "memory" else request.getfixturevalue("empty_redis").url
    with Bus(where, domain="scan", stages=MANY) as bus, ThreadPoolExecutor(1) as pool:
        bus.publish_batch([("job-1", "work", n, n) for n in range(700)])
        with closing(bus.subscribe("job-1", last_seq=4)) as watched:
            seen = [next(watched).data for _ in range(695)]
            for number in range(700, 703):
                coming = pool.submit(next, watched)
                time.sleep(0.05)
                bus.publish("job-1", "work", number, seq=number)
                seen.append(coming.result(PATIENCE).data)
        assert seen == list(range(5, 703))
        with closing(bus.subscribe("job-1", after="nonsense")) as watched:
            assert next(watched) == Resync("foreign")
            assert next(watched).data == 0
