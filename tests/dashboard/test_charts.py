"""Charts of the calls of all processes: what is drawn, and where the numbers come from."""

import re

import pytest

from oncekey import Once
from oncekey.dashboard.charts import HEIGHT, SPANS, charts
from oncekey.engine.chores import Counting
from oncekey.stores.activity import RINGS, Activity, Slot
from tests.dashboard.conftest import TOKEN, hold
from tests.patience import until

MINUTE = 60_000_000
NOW = 1_767_225_600_000_000 + 90_000_000


def slots(*counts):
    start = NOW - NOW % MINUTE
    return [Slot(MINUTE, start - ago * MINUTE, (new, 0, 0, 0)) for ago, new in counts]


def test_each_slot_is_a_bar_and_the_highest_fills_the_chart():
    drawn = charts(Activity(NOW, slots((0, 4), (1, 8), (59, 2))), "hour")
    new, duplicates, *_ = drawn.charts
    assert [(bar.count, bar.height) for bar in new.bars] == [
        (2, HEIGHT / 4),
        (8, HEIGHT),
        (4, HEIGHT / 2),
    ]
    assert (new.bars[0].x, new.bars[-1].x) == (0, 590)
    assert (new.total, new.most) == ("14", "at most 8 in a minute")
    assert new.said == "New calls in the last hour: 14, at most 8 in a minute"
    assert (duplicates.bars, duplicates.total, duplicates.most) == ([], "0", "")
    assert not drawn.quiet
    assert drawn.since == NOW - NOW % MINUTE - 59 * MINUTE


def test_one_call_among_many_can_still_be_seen():
    [small, _] = charts(Activity(NOW, slots((0, 1_000_000), (9, 1))), "hour").charts[0].bars
    assert small.height == 2
    assert small.y + small.height == HEIGHT


@pytest.mark.parametrize("span", SPANS)
def test_without_calls_it_is_quiet(span):
    drawn = charts(Activity(NOW, []), span)
    assert drawn.quiet
    assert [chart.total for chart in drawn.charts] == ["0"] * 4


def drawn_on(text):
    return dict(re.findall(r'data-chart="(\w+)">([^<]*)<', text))


async def test_the_overview_has_the_calls_of_every_process(once, dashboard, inside):
    for number in (1, 1, 1, 2):
        once.run(f"k-{number}", lambda: 1)
    hold(once, "held")
    for _ in range(2):  # what the keeper does every ten seconds, in each process
        Counting(once.store, once.core.observers).do()
    once.store.add_activity((5, 0, 0, 3), 2 * 60 * MINUTE)  # of another one, two hours ago
    browser = await inside(dashboard(once))
    text = (await browser.get("/")).text
    assert drawn_on(text) == {"new": "3", "duplicates": "2", "held": "1", "errors": "0"}
    text = (await browser.get("/?over=day")).text
    assert drawn_on(text) == {"new": "8", "duplicates": "2", "held": "1", "errors": "3"}
    assert 'aria-current="true">day<' in text
    assert (await browser.get("/?over=year")).status_code == 400


def test_the_keeper_writes_by_itself(monkeypatch):
    monkeypatch.setattr("oncekey.engine.runtime.COUNT_EVERY", 0.01)
    once = Once("memory://", observers=())
    once.run("k", lambda: 1)
    until(lambda: once.store.activity().slots)
    assert {slot.counts for slot in once.store.activity().slots} == {(1, 0, 0, 0)}


async def test_a_call_makes_no_round_trip_for_the_charts(memory, monkeypatch):
    asked = []
    monkeypatch.setattr(memory.store, "add_activity", lambda *counts: asked.append(counts))
    memory.run("k", lambda: 1)
    memory.run("k", lambda: 1)
    assert asked == []
    Counting(memory.store, memory.core.observers).do()
    assert [counts for counts, _ in asked] == [(1, 1, 0, 0)]


async def test_a_store_that_keeps_no_counts_has_no_charts(memory, dashboard, inside, monkeypatch):
    monkeypatch.setattr(type(memory.store), "activity", None)
    text = (await (await inside(dashboard(memory))).get("/")).text
    assert "Calls of all processes" not in text
    assert TOKEN not in text


def test_the_rings_do_not_share_slots():
    ends = [ring.first + ring.length for ring in RINGS]
    assert [ring.first for ring in RINGS] == [0, *ends[:-1]]
    assert ends[-1] == 372
