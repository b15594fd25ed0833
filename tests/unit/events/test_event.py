"""Events, stages and shards: the rules that need no server."""

import hashlib
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey import ConfigurationError
from oncekey.events import InvalidEventError, Published, Stages, shard_of
from oncekey.events import event as drafts
from oncekey.events.cursor import Cursor
from oncekey.events.event import Draft, Identity, prepare, read_event
from oncekey.events.settings import BusSettings


@pytest.mark.row("E2")
@given(st.text(st.characters(codec="utf-8"), min_size=1), st.integers(1, 64))
def test_a_shard_is_the_md5_of_the_job_modulo_the_shards(job, shards):
    digest = hashlib.md5(job.encode(), usedforsecurity=False).hexdigest()
    assert shard_of(job, shards) == int(digest, 16) % shards


@pytest.mark.row("E2")
def test_shards_never_move():
    assert [shard_of(f"job-{n}", 4) for n in range(8)] == [0, 0, 3, 2, 3, 2, 1, 1]


@pytest.mark.row("E1")
def test_only_the_first_is_true():
    assert Published(1, "e", duplicate=False, differs=False)
    assert not Published(1, "e", duplicate=True, differs=True)


@pytest.mark.row("E6")
@pytest.mark.parametrize(
    ("stage", "first", "last"),
    [
        ("vision", 10, 19),
        ("rule", 20, 29),
        ("answer", 30, 39),
        ("reward", 40, 49),
        ("done", 50, 59),
    ],
)
def test_the_ranges_of_the_stages(stage, first, last):
    stages = Stages()
    assert stages.range_of(stage) == (first, last)
    for number in (first, last):
        assert stages.seq_of(stage, seq=number, step=None) == number
        assert stages.seq_of(stage, seq=None, step=number - first) == number
    for number in (first - 1, last + 1):
        with pytest.raises(InvalidEventError, match=f"from {first} to {last}"):
            stages.seq_of(stage, seq=number, step=None)


@pytest.mark.row("E6")
def test_other_stages_need_a_default():
    with pytest.raises(InvalidEventError, match="no stage 'queued'"):
        Stages().range_of("queued")
    assert Stages(default=(0, 9)).range_of("queued") == (0, 9)


@pytest.mark.row("E6")
def test_the_end_is_51_unless_it_is_said_otherwise():
    assert [seq for seq in range(100) if Stages().is_final(seq)] == [51]
    own = Stages({"load": (1, 5), "save": (6, 9)}, final=9)
    assert own.is_final(9)
    assert own.seq_of("save", seq=None, step=3) == 9
    assert not Stages({"load": (1, 5)}).is_final(51)


@pytest.mark.parametrize(
    "ranges",
    [
        {"a": (5, 4)},
        {"a": (-1, 4)},
        {"a": (0, 2**53)},
        {"a": (0, 9), "b": (9, 12)},
        {"a": [0, 9]},
        {"a": (0, True)},
        {"a": (0,)},
        {"": (0, 1)},
        ["a"],
    ],
)
def test_ranges_that_cannot_be_are_refused(ranges):
    with pytest.raises(ConfigurationError):
        Stages(ranges)


@pytest.mark.parametrize("final", [6, "5", True])
def test_an_end_that_no_event_can_have_is_refused(final):
    with pytest.raises(ConfigurationError, match="final must be a number of one of the stages"):
        Stages({"load": (2, 5)}, final=final)


def test_a_default_may_not_share_numbers_with_a_stage():
    with pytest.raises(ConfigurationError, match="share the number 10"):
        Stages(default=(0, 10))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON)
def test_what_is_sent_comes_back(data):
    ask = prepare(Draft("job-1", "vision", data, step=3), BusSettings("scan"))
    event = read_event(ask.payload, Cursor("ab", 7, "cd"))
    assert event.identity == Identity("scan", "job-1", "vision", 13)
    assert (event.data, event.offset, event.id) == (data, 7, "ab.7.cd")


def test_two_asks_of_one_event_differ_in_their_marks_alone():
    one, other = (
        prepare(Draft("job-1", "vision", {"a": order}, 10), BusSettings("scan"))
        for order in ({"x": 1, "y": 2}, {"y": 2, "x": 1})
    )
    assert one.digest == other.digest
    assert one.mark != other.mark
    assert one.epoch != other.epoch


def test_the_time_of_the_producer_is_written_as_python_writes_it(monkeypatch):
    for second, rest, written in [
        (1_900_000_000, 999_999_999, "2030-03-17T17:46:40.999999+00:00"),
        (1_900_000_001, 1_500, "2030-03-17T17:46:41.000001+00:00"),
        (1_900_000_000, 0, "2030-03-17T17:46:40.000000+00:00"),  # a clock may go back
    ]:
        monkeypatch.setattr(drafts, "time_ns", lambda now=second * 10**9 + rest: now)
        ask = prepare(Draft("job-1", "vision", None, 10), BusSettings("scan"))
        assert read_event(ask.payload, Cursor("ab", 7, "cd")).timestamp == written
        assert datetime.fromisoformat(written).timestamp() == pytest.approx(second + rest / 1e9)


def test_a_null_is_no_nan():
    assert prepare(Draft("job-1", "vision", [None, "null"], 10), BusSettings("scan")).payload
