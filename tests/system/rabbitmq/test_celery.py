"""Celery on a quorum queue, which counts deliveries and drops a job after 20 of them."""

import random
from contextlib import closing

import pytest

from oncekey import Once
from tests.leases import LONG, end_lease
from tests.patience import until
from tests.servers.redis_fixtures import another_redis
from tests.system.rabbitmq.celery_app import LIMIT
from tests.system.rabbitmq.celery_kills import KillRun, kill_at_random

__all__ = ["another_redis"]


@pytest.fixture
def store(another_redis):
    return another_redis()


@pytest.fixture
def kill_run(rabbit_server, store, tmp_path):
    """Makes a queue of its own, whose workers end with the test."""
    runs = []

    def make(**said):
        runs.append(KillRun(rabbit_server.url, store, tmp_path, **said))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.mark.row("J1", "J6")
@pytest.mark.parametrize(("exchange", "times"), [("topic", LIMIT + 1), ("direct", 3)])
def test_a_job_whose_worker_was_killed_waits_for_its_lease(kill_run, store, exchange, times):
    """It goes back into its queue more often than the broker would deliver one message."""
    run = kill_run(lease=f"{LONG}s", retry_after="200ms", exchange=exchange)
    order = run.send("stall")
    run.start()
    until(lambda: run.ledger.llen("said") == 1, run.told)
    run.kill(0)
    refused = f"events:{order}"
    until(lambda: run.dead() or run.ledger.lrange(refused, 0, -1).count("busy") >= times, run.told)
    assert run.dead() == 0
    with closing(Once(store.url)) as once:
        end_lease(once.store, str(order), scope="stall")
    run.ledger.rpush(f"told:{order}", "go on")
    until(lambda: run.done() or run.dead(), run.told)
    assert (run.done(), run.dead(), run.ledger.llen("said")) == (1, 0, 2)
    assert "could not be put back" not in run.log.read_text(errors="replace")


@pytest.mark.row("J1", "J6")
def test_workers_that_are_killed_at_random_lose_no_job(kill_run):
    run = kill_run(lease="5s", retry_after="500ms")
    dice = random.Random(7)  # noqa: S311 - the same chance each time
    for _ in range(12):
        run.send("charge", dice.uniform(0, 1))
    for _ in range(2):
        run.start()
    kill_at_random(run, every=4, dice=dice)
    assert (run.done(), run.twice(), run.dead()) == (12, 0, 0), run.told()
