"""How the benchmark holds us against peers: by the closest one, and with what is missing named."""

from contextlib import contextmanager

import pytest
import redis

from bench.peers import functions
from bench.peers.functions import Ways, ours
from bench.peers.late_answers import refuses_late_answers
from bench.report.rows import closest_row
from bench.timing import Timings
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

PEERS = {"quick": "quick", "slow": "slow", "absent": "absent"}


def test_ours_is_held_against_the_peer_that_comes_closest():
    timings = Timings(ours=[1.0, 1.0], quick=[2.0, 2.0], slow=[8.0, 8.0])
    row = closest_row(timings, "ours", PEERS, id_="peers-x", title="Peers", remark="and so on")
    assert (row.against, row.ratio.median, row.met) == ("quick", 2.0, True)
    assert row.remark == "of slow 8.00x; absent is not installed; and so on"


def test_one_peer_that_is_faster_is_enough_to_miss():
    timings = Timings(ours=[1.0, 1.0], quick=[0.9, 0.9], slow=[8.0, 8.0])
    row = closest_row(timings, "ours", PEERS, id_="peers-x", title="Peers")
    assert (row.against, row.met, row.verdict) == ("quick", False, "MISSED")


@pytest.mark.parametrize("timings", [None, Timings(ours=[1.0, 1.0])])
def test_without_any_peer_nothing_is_claimed(timings):
    row = closest_row(timings, "ours", PEERS, id_="peers-x", title="Peers", remark="why")
    assert (row.ratio, row.met, row.verdict) == (None, None, "NOT MEASURED")
    assert row.against == "quick, slow, absent"
    assert row.remark.endswith("why")


def test_a_peer_that_was_not_installed_whole_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(functions.folders, "FOLDER", tmp_path)
    (tmp_path / "function-dbos").mkdir()
    assert not functions.installed("dbos")


@contextmanager
def last_wins(url, bodies, runner):
    """A protection that writes whatever comes, whenever it comes."""
    client = redis.Redis.from_url(url)

    def call(order, amount):
        if client.set(order, "runs", nx=True):
            client.set(order, bodies.blocking(order, amount))
        return client.get(order).decode()

    yield Ways(call, None)
    client.close()


@contextmanager
def first_wins(url, bodies, runner):
    """A protection that takes the first answer, whoever gives it."""
    client = redis.Redis.from_url(url)

    async def call(order, amount):
        if client.set(order, "runs", nx=True):
            answer = await bodies.waiting(order, amount)
            if client.get(order) == b"runs":
                client.set(order, answer)
        return client.get(order).decode()

    yield Ways(None, call)
    client.close()


@pytest.mark.parametrize(
    ("opener", "refuses"), [(ours, True), (last_wins, False), (first_wins, False)]
)
def test_a_late_answer_is_tried_on_each_side(empty_redis, opener, refuses):
    with redis.Redis.from_url(empty_redis.url) as client:
        assert refuses_late_answers(opener, empty_redis.url, client.flushdb) is refuses
