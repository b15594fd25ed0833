"""Blocking code that follows several jobs and topics: each event once, in order for each job."""

import logging
import time
from collections import defaultdict
from contextlib import closing

import pytest

from oncekey.errors import UnreadableError
from oncekey.events import Bus, InvalidEventError, Memory, Resync, Stages, tail
from tests.events.ways import coming
from tests.patience import PATIENCE, until

MANY = Stages({"work": (1, 9999)})


@pytest.fixture(params=["memory", "redis"])
def bus(request):
    where = Memory() if request.param == "memory" else request.getfixturevalue("empty_redis").url
    with Bus(where, domain="scan", stages=MANY) as made:
        yield made


@pytest.fixture
def redis_bus(empty_redis):
    with Bus(empty_redis.url, domain="scan", stages=MANY, shards=1) as made:
        yield made


@pytest.fixture
def nobody_looks_unasked(monkeypatch):
    """Who is not woken is too late."""
    monkeypatch.setattr(tail, "PATIENCE", 2 * PATIENCE)


def fill(bus, job, count, start=1):
    bus.publish_batch([(job, "work", None, n) for n in range(start, start + count)])


def taken(watched, count):
    """The next so many changes, as numbers by job."""
    by_job = defaultdict(list)
    for job, one in coming(watched, count).result(PATIENCE):
        by_job[job].append(one if isinstance(one, Resync) else one.seq)
    return dict(by_job)


@pytest.mark.row("E5")
@pytest.mark.usefixtures("nobody_looks_unasked")
def test_each_job_comes_whole_and_in_order_also_those_that_begin_later(bus):
    fill(bus, "a", 700)
    fill(bus, "order/1", 3)
    fill(bus, "other/1", 3)
    with closing(bus.subscribe_many(["a", "b", "order/*", "order/1"])) as watched:
        assert taken(watched, 703) == {"a": list(range(1, 701)), "order/1": [1, 2, 3]}
        for job, start in (("a", 701), ("b", 1), ("order/1", 4), ("order/2", 1), ("order/2", 2)):
            change = coming(watched)
            fill(bus, job, 1, start)
            [(found, event)] = change.result(PATIENCE)
            assert (found, event.seq) == (job, start)


@pytest.mark.row("E5")
def test_each_job_goes_on_from_its_own_place_and_a_resync_is_about_its_job_alone(bus):
    for job in ("a", "b", "order/1"):
        fill(bus, job, 3)
    places = {"a": bus.read("a", limit=1).cursor, "order/1": str(bus.read("b", limit=2).cursor)}
    with closing(bus.subscribe_many(["a", "b", "order/*"], after=places)) as watched:
        found = taken(watched, 9)
    assert found == {"a": [2, 3], "b": [1, 2, 3], "order/1": [Resync("epoch"), 1, 2, 3]}


def test_a_long_job_does_not_hold_up_the_others(bus):
    fill(bus, "long", 2000)
    fill(bus, "short", 1)
    with closing(bus.subscribe_many(["long", "short"])) as watched:
        assert taken(watched, 501)["short"] == [1]


def test_a_job_that_nobody_hears_of_is_looked_at_all_the_same(redis_bus, monkeypatch):
    """The others are heard of again and again meanwhile."""
    client, nudge = redis_bus._log._clients.client(), "{scan:0}:log:loud"
    listener = redis_bus._log.listening()

    class Deaf:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            listener.__exit__()

        def hear(self, name, shard):
            if name == "loud":
                listener.hear(name, shard)

        def wait(self, seconds):
            client.publish(nudge, "")
            return listener.wait(seconds)

    monkeypatch.setattr(redis_bus._log, "listening", Deaf)
    monkeypatch.setattr(tail, "PATIENCE", 0.2)
    fill(redis_bus, "loud", 1)
    with closing(redis_bus.subscribe_many(["loud", "quiet"])) as watched:
        assert taken(watched, 1) == {"loud": [1]}
        fill(redis_bus, "loud", 1, 2)
        assert taken(watched, 1) == {"loud": [2]}  # each was looked at once
        fill(redis_bus, "quiet", 1)
        assert taken(watched, 1) == {"quiet": [1]}


def test_a_job_of_a_topic_that_ran_out_and_begins_again_is_a_resync(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(tail, "PATIENCE", 0.05)
    bus = Bus(Memory(clock=lambda: now[0]), domain="scan", stages=MANY)
    fill(bus, "order/1", 1)
    with closing(bus.subscribe_many(["order/*"])) as watched:
        assert taken(watched, 1) == {"order/1": [1]}
        now[0] = 10_000
        fill(bus, "order/2", 1)
        assert taken(watched, 1) == {"order/2": [1]}
        fill(bus, "order/1", 1, 2)
        assert taken(watched, 2) == {"order/1": [Resync("epoch"), 2]}


def test_a_subscription_that_is_cut_off_is_made_again(redis_bus, monkeypatch, caplog):
    monkeypatch.setattr(tail, "PATIENCE", 2 * PATIENCE)
    caplog.set_level(logging.DEBUG, "oncekey.events")
    client = redis_bus._log._clients.client()
    with closing(redis_bus.subscribe_many(["a", "order/*"])) as watched:
        for number in range(1, 4):
            change = coming(watched)
            until(lambda: len(client.pubsub_channels()) == 2)
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            fill(redis_bus, "a", 1, number)
            assert change.result(PATIENCE)[0][1].seq == number
    assert "broke" in caplog.text
    until(lambda: not client.pubsub_channels())


def test_what_is_over_is_heard_of_no_more(bus):
    with closing(bus.subscribe_many(["a", "order/*"])) as watched:
        fill(bus, "a", 1)
        fill(bus, "order/1", 1)
        taken(watched, 2)
    if hasattr(bus._log, "_memory"):
        assert not bus._log._memory.ears
    else:
        client = bus._log._clients.client()
        until(lambda: not client.pubsub_channels())


def test_a_topic_with_too_many_jobs_is_refused_aloud(bus, monkeypatch):
    monkeypatch.setattr(tail, "MOST_JOBS", 2)
    for number in range(3):
        fill(bus, f"order/{number}", 1)
    with (
        closing(bus.subscribe_many(["order/*"])) as watched,
        pytest.raises(UnreadableError, match=r"'order/\*' cannot be followed: .* 2 living jobs"),
    ):
        taken(watched, 1)


def test_a_job_that_cannot_be_read_is_an_error(redis_bus, empty_redis):
    fill(redis_bus, "bad", 1)
    empty_redis.client().rpush("{scan:0}:log:bad", b"somebody was here")
    with (
        closing(redis_bus.subscribe_many(["bad", "good"])) as watched,
        pytest.raises(UnreadableError, match="changed by somebody else"),
    ):
        taken(watched, 2)


def test_while_redis_is_away_the_reader_waits_and_says_so_once(another_redis, monkeypatch, caplog):
    pauses = []
    monkeypatch.setattr(tail, "sleep", lambda _: pauses.append(time.sleep(0.01)))
    server = another_redis()
    with Bus(server.url, domain="scan", stages=MANY) as bus:
        fill(bus, "a", 1)
        with closing(bus.subscribe_many(["a"])) as watched:
            assert taken(watched, 1) == {"a": [1]}
            server.kill()
            change = coming(watched)
            until(lambda: len(pauses) > 3)
            told = [one.message for one in caplog.records if "waits for its store" in one.message]
            assert len(told) == 1
            server.start()
            until(lambda: change.done() or not fill(bus, "a", 1))
            assert change.result(PATIENCE) == [("a", Resync("epoch"))]


@pytest.mark.parametrize(
    ("names", "after", "told"),
    [
        ([], None, "name at least one job or topic"),
        (["a/b/*"], None, "a topic is what stands before the first slash"),
        ([""], None, "job"),
        ("order/*", None, r"give a list of job ids and topics, such as \['order/\*'\]"),
        (["a"], "1.1.1", "after has the cursor of the last event by job id"),
    ],
)
def test_what_cannot_be_followed_is_refused_at_once(bus, names, after, told):
    with pytest.raises(InvalidEventError, match=told):
        bus.subscribe_many(names, after=after)
