"""Publishing, on every bus and in both colours."""

import math

import pytest

from oncekey import ConfigurationError, KeyReusedError
from oncekey.events import Draft, InvalidEventError, Published, Stages


@pytest.mark.row("E1")
async def test_an_event_that_is_published_twice_is_there_once(system):
    bus = system.bus()
    first = await bus.publish("job-1", "vision", {"status": "done"}, seq=10)
    second = await bus.publish("job-1", "vision", {"status": "done"}, seq=10)
    assert first
    assert not second
    assert first == Published(1, first.epoch, duplicate=False, differs=False)
    assert second == Published(1, first.epoch, duplicate=True, differs=False)
    assert [event.seq for event in (await bus.read("job-1")).events] == [10]


@pytest.mark.row("E1")
@pytest.mark.parametrize(
    ("job", "stage", "seq"),
    [("job-2", "vision", 10), ("job-1", "vision", 11), ("job-1", "rule", 20)],
)
async def test_another_job_stage_or_number_is_another_event(system, job, stage, seq):
    bus = system.bus()
    await bus.publish("job-1", "vision", 1, seq=10)
    assert await bus.publish(job, stage, 1, seq=seq)


@pytest.mark.row("E1")
async def test_another_domain_is_another_world(system):
    assert await system.bus("scan").publish("job-1", "vision", 1, seq=10)
    assert await system.bus("chat").publish("job-1", "vision", 1, seq=10)


async def test_the_first_of_two_that_differ_stays(system):
    bus = system.bus()
    await bus.publish("job-1", "vision", {"a": 1, "b": 2}, seq=10)
    assert not (await bus.publish("job-1", "vision", {"b": 2, "a": 1}, seq=10)).differs
    again = await bus.publish("job-1", "vision", {"a": 2}, seq=10)
    assert (again.duplicate, again.differs) == (True, True)
    assert (await bus.read("job-1")).events[0].data == {"a": 1, "b": 2}


async def test_strictly_a_duplicate_with_other_data_is_an_error(system):
    bus = system.bus()
    assert await bus.publish("job-1", "vision", 1, seq=10, strict=True)
    assert not await bus.publish("job-1", "vision", 1, seq=10, strict=True)
    with pytest.raises(KeyReusedError, match="vision 10 of job 'job-1'") as caught:
        await bus.publish("job-1", "vision", 2, seq=10, strict=True)
    assert (caught.value.key, caught.value.scope) == ("job-1/vision/10", "scan")


async def test_offsets_follow_the_order_of_acceptance_and_not_the_numbers(system):
    bus = system.bus()
    offsets = [
        (await bus.publish("job-1", stage, None, step=step)).offset
        for stage, step in [("answer", 1), ("vision", 0), ("done", 1), ("vision", 0), ("rule", 2)]
    ]
    assert offsets == [1, 2, 3, 2, 4]
    events = (await bus.read("job-1")).events
    assert [(event.offset, event.seq) for event in events] == [(1, 31), (2, 10), (3, 51), (4, 22)]


async def test_a_batch_is_answered_in_its_order(system):
    bus = system.bus()
    drafts = [Draft(f"job-{n % 5}", "vision", n, step=n // 5) for n in range(20)]
    first = await bus.publish_batch([*drafts, drafts[0]])
    assert [one.offset for one in first] == [n // 5 + 1 for n in range(20)] + [1]
    assert [bool(one) for one in first] == [True] * 20 + [False]
    assert not any(await bus.publish_batch(drafts))
    assert await bus.publish_batch([]) == []


@pytest.mark.row("E6")
async def test_a_position_in_the_range_of_a_stage_is_a_number(system):
    bus = system.bus(stages=Stages(default=(0, 9)))
    for stage in ("vision", "rule", "answer", "reward", "done", "other"):
        await bus.publish("job-1", stage, None, step=1)
    assert [event.seq for event in (await bus.read("job-1")).events] == [11, 21, 31, 41, 51, 1]


BAD = {
    "no such stage": ("job-1", "dream", 1, {"seq": 10}),
    "no stage": ("job-1", "", 1, {"seq": 10}),
    "a stage that is no word": ("job-1", 7, 1, {"seq": 10}),
    "below the range": ("job-1", "vision", 1, {"seq": 9}),
    "above the range": ("job-1", "vision", 1, {"seq": 20}),
    "past the range": ("job-1", "vision", 1, {"step": 10}),
    "before the range": ("job-1", "rule", 1, {"step": -1}),
    "no number": ("job-1", "vision", 1, {}),
    "two numbers": ("job-1", "vision", 1, {"seq": 10, "step": 0}),
    "half a number": ("job-1", "vision", 1, {"seq": 10.5}),
    "a truth": ("job-1", "vision", 1, {"step": True}),
    "no job": ("", "vision", 1, {"seq": 10}),
    "a job that is no text": (None, "vision", 1, {"seq": 10}),
    "a job that is too long": ("j" * 513, "vision", 1, {"seq": 10}),
    "a job that is no Unicode": ("job-\ud800", "vision", 1, {"seq": 10}),
    "an object": ("job-1", "vision", object(), {"seq": 10}),
    "no number in the data": ("job-1", "vision", [1, math.nan], {"seq": 10}),
    "no Unicode in the data": ("job-1", "vision", "\ud800", {"seq": 10}),
    "too large": ("job-1", "vision", "x" * 1000, {"seq": 10}),
}


@pytest.mark.parametrize("bad", BAD)
async def test_what_cannot_be_published_is_refused_and_nothing_is_appended(system, bad):
    job, stage, data, number = BAD[bad]
    bus = system.bus(max_data=1000)
    with pytest.raises(InvalidEventError) as caught:
        await bus.publish(job, stage, data, **number)
    assert caught.value.status_hint == 400
    assert (await bus.read("job-1")).cursor is None


async def test_one_bad_event_keeps_the_whole_batch_out(system):
    bus = system.bus()
    with pytest.raises(InvalidEventError):
        await bus.publish_batch([Draft("job-1", "vision", 1, 10), Draft("job-1", "vision", 1, 99)])
    assert (await bus.read("job-1")).events == []


@pytest.mark.parametrize(
    "options",
    [
        {"domain": ""},
        {"domain": "a{b"},
        {"domain": "a b"},
        {"stages": {"vision": (1, 2)}},
        {"shards": 0},
        {"length": True},
        {"dead_length": 0},
        {"length": 10, "most": 9},
        {"state_ttl": "2h", "marker_ttl": "1h"},
        {"max_data": "much"},
    ],
)
async def test_settings_that_cannot_be_are_refused_at_once(system, options):
    with pytest.raises(ConfigurationError):
        system.bus(**options)
