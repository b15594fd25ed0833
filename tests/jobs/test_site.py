"""What the site of a queue does when its workers cannot work."""

import sys
import threading

import pytest

from tests.jobs.queues import Queue
from tests.jobs.site import Site
from tests.patience import PATIENCE
from tests.servers.redis_fixtures import another_redis  # noqa: F401 - a fixture


class Lost(Queue):
    """A queue whose workers die at once, as where they may not share memory."""

    def words(self):
        return [sys.executable, "-c", "raise SystemExit('no shared memory')"]

    def put(self, job, *_):
        return job

    put_twice = put_once = put

    def result(self, _):
        threading.Event().wait(PATIENCE)

    def close(self): ...


@pytest.fixture
def site(another_redis, tmp_path):  # noqa: F811 - a fixture
    server = another_redis()
    found = Site(Lost, server, server, tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize(
    "wait",
    [
        lambda site, order: site.queue.result(order),
        lambda site, order: site.settled(lambda: False),
        lambda site, order: site.said(order, "inside"),
        lambda site, order: site.happened(order, "new"),
    ],
    ids=["result", "settled", "said", "happened"],
)
def test_who_waits_for_workers_that_have_died_is_told_what_they_said(site, wait):
    order = site.queue.put("charge", site.order())
    for _ in range(2):
        site.start()
    with pytest.raises(AssertionError, match="all workers have died; no shared memory"):
        wait(site, order)


def test_nothing_is_put_where_all_workers_have_died(site):
    site.start().process.wait(PATIENCE)
    with pytest.raises(AssertionError, match="no shared memory"):
        site.queue.put("charge", site.order())


def test_workers_that_were_stopped_have_not_died(site):
    site.start().stop()
    assert site.queue.put("charge", "order-7") == "charge"
