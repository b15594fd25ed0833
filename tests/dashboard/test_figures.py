"""The live numbers: counted in this process, or said not to be known."""

import re
import threading

import pytest

from oncekey import Once
from oncekey.dashboard import figures, queries
from oncekey.dashboard.counter import RECENT, SLOTS, CallCounter
from oncekey.dashboard.counter import SLOT_SECONDS as SLOT
from oncekey.dashboard.figures import HEIGHT, WIDTH, area, bar, line
from oncekey.dashboard.queries import Queries, Shared, StoreView, _change
from oncekey.errors import StoreError
from oncekey.stores.browse import STATUSES, RecordCounts, RecordPage
from tests.dashboard.conftest import HOLDING, hold, tell

MINUTE = 60_000_000


def counted(total: int, *, exact: bool = True, now: int = 0, **by_status: int) -> RecordCounts:
    statuses = dict.fromkeys(STATUSES, 0) | by_status
    return RecordCounts(
        total=total,
        by_status=statuses,
        lapsed=0,
        exact=exact,
        held_exact=True,
        looked_at=1000,
        now=now,
    )


def look(counts: RecordCounts, per_minute: float | None = None) -> StoreView:
    nothing = RecordPage(records=[], sizes=[], after=None, newest_first=True, now=counts.now)
    return StoreView(counts=counts, per_minute=per_minute, held=nothing, newest=nothing)


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def counter(clock):
    return CallCounter(lambda: clock[0])


def test_calls_are_counted(counter):
    for name, count in (("new", 6), ("duplicate", 2), ("busy", 1), ("reused", 1)):
        counter(tell(name, count))
    calls = counter.counts()
    assert (calls.total, calls.duplicates, calls.share) == (10, 3, 0.3)
    assert (calls.checks[-1], calls.saved[-1]) == (10, 3)


def test_events_that_are_no_check_are_not_counted(counter):
    assert not counter.wants("completed")
    assert counter.wants("duplicate")
    counter(tell("completed"))
    assert counter.counts().total == 0
    assert counter.counts().share is None


def test_the_recent_past_moves_on_and_totals_stay(counter, clock):
    counter(tell("duplicate", 12))
    clock[0] += 3 * SLOT
    counter(tell("new", 6))
    calls = counter.counts()
    assert calls.checks[-4:] == [12, 0, 0, 6]
    assert calls.per_second == 18 / (RECENT * SLOT)
    clock[0] += (SLOTS - 1) * SLOT
    assert counter.counts().checks[0] == 6
    clock[0] += 10 * SLOTS * SLOT
    calls = counter.counts()
    assert calls.checks == [0] * SLOTS
    assert calls.total == 18


def test_a_clock_that_goes_back_does_no_harm(counter, clock):
    counter(tell("new"))
    clock[0] -= 100
    counter(tell("new"))
    assert counter.counts().checks[-1] == 2


def test_threads_lose_nothing(counter):
    def count():
        for _ in range(1000):
            counter(tell("duplicate"))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.counts().duplicates == 4000


def test_a_forked_child_counts_its_own(counter):
    counter(tell("duplicate"))
    counter.after_fork()
    assert counter.counts().total == 0


async def test_the_page_counts_what_this_process_does(memory, dashboard, inside):
    browser = await inside(dashboard(memory))
    assert "No protected call has come through this process" in (await browser.get("/")).text
    for _ in range(4):
        memory.run("k-1", lambda: 1)
    text = (await browser.get("/")).text
    assert 'data-text="saved">3<' in text
    assert 'data-text="share">75 %<' in text
    assert "<svg" in text
    assert 'data-text="ran">1<' in text
    assert ' d="M0.0 ' in text
    assert 'data-said="3 duplicates saved, ' in text


async def test_a_process_that_only_looks_does_not_claim_to_know(memory, dashboard, inside):
    browser = await inside(dashboard(memory, watch=False))
    memory.run("k-1", lambda: 1)
    memory.run("k-1", lambda: 1)
    text = (await browser.get("/")).text
    assert "Duplicates saved" not in text
    assert 'data-text="saved"' not in text


def test_a_change_is_told_from_two_counts():
    before, later = counted(100, now=MINUTE), counted(160, now=3 * MINUTE)
    assert _change(before, later) == 30
    assert _change(None, later) is None
    assert _change(later, later) is None


def test_two_estimates_are_not_compared():
    before, later = counted(100, exact=False), counted(160, exact=False, now=MINUTE)
    assert _change(before, later) is None
    told = figures.figures(look(later), None)
    assert told.texts["total"] == "about 160"
    told = figures.figures(look(counted(293_024, exact=False)), None)
    assert told.texts["total"] == "about 290\N{NARROW NO-BREAK SPACE}000", "it looks exact"
    assert told.texts["basis"] == "estimated from 1\N{NARROW NO-BREAK SPACE}000 records"
    assert told.texts["change"] == "estimates show no change"


@pytest.mark.parametrize(
    ("per_minute", "words"),
    [(None, "change not known yet"), (0.2, "steady"), (12.0, "+12 /min"), (-1500.0, "-1,500 /min")],
)
def test_the_words_for_a_change(per_minute, words):
    assert figures.figures(look(counted(1), per_minute), None).texts["change"] == words


@pytest.mark.parametrize(
    ("per_second", "words"),
    [(0, "0 /s"), (0.25, "15 /min"), (3.14, "3.1 /s"), (1234, "1\N{NARROW NO-BREAK SPACE}234 /s")],
)
def test_the_words_for_a_rate(per_second, words):
    assert figures.rate(per_second) == words


def test_a_small_share_is_not_nothing(counter):
    assert figures.share(counter.counts()) == figures.UNKNOWN
    counter(tell("new", 997))
    counter(tell("duplicate", 3))
    assert figures.share(counter.counts()) == "0.3 %"


def test_lines_stay_inside_their_drawing():
    assert line([0, 10, 5], 10) == f"M0.0 {HEIGHT}.0L300.0 6.0L600.0 53.0"
    assert area([0], 0).endswith(f"L{WIDTH} {HEIGHT}L0 {HEIGHT}Z")


def test_a_status_that_exists_is_seen():
    pieces = bar({"completed": 1_000_000, "held": 1})
    widths = {piece.status: piece.width for piece in pieces}
    assert widths["held"] > 5
    assert widths["running"] == 0
    assert sum(widths.values()) == pytest.approx(WIDTH, abs=1)
    assert all(piece.width == 0 for piece in bar({}))


def test_an_answer_serves_everybody_for_a_while():
    asked = []
    shared = Shared(lambda: asked.append(1) or len(asked), 60)
    assert [shared(), shared(), shared(anew=True), shared()] == [1, 1, 2, 2]


def test_a_refusal_serves_everybody_for_a_while_too():
    asked = []

    def refuse():
        asked.append(1)
        raise StoreError("no", happened=False)

    shared = Shared(refuse, 60)
    for _ in range(3):
        with pytest.raises(StoreError):
            shared()
    assert len(asked) == 1


async def test_counts_are_shared_between_those_who_look(tmp_path):
    once = Once(f"sqlite:///{tmp_path / 'records.db'}", observers=(), policy=HOLDING)
    shared = Queries(once)
    first = await shared.look()
    once.run("k-1", lambda: 1)
    assert await shared.look() is first
    shared.outdate()
    assert (await shared.look()).counts.total == 1
    once.close()


@pytest.mark.parametrize("later", ["held", "resolved"])
async def test_numbers_and_lists_agree_whatever_happens_between_them(
    tmp_path, monkeypatch, dashboard, inside, later
):
    """The list is read first, then the numbers, and somebody holds or resolves in between."""
    once = Once(f"sqlite:///{tmp_path / 'records.db'}", observers=(), policy=HOLDING)
    hold(once, "first")
    real = queries.count_records

    def between(store):
        if later == "held":
            hold(once, "second")
        else:
            once.resolve("first", retry=True)
        return real(store)

    monkeypatch.setattr(queries, "count_records", between)
    text = (await (await inside(dashboard(once))).get("/")).text
    assert 'data-text="status-held">1<' in text
    assert text.count('href="/record?at=first"') == 2  # among the held and the newest ones
    assert "Nothing is held" not in text
    assert re.search(r"As of <time[^>]*>\d{4}-\d\d-\d\d \d\d:", text)
    once.close()
