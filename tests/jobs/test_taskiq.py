"""What only workers on a stream can show."""

import itertools

import pytest

from tests.jobs.conftest import group

pytestmark = group("taskiq")


@pytest.fixture
def site(open_site):
    return open_site("taskiq")


@pytest.mark.row("J1")
def test_a_job_that_outlasts_the_idle_timeout_runs_once(site):
    order = site.order()
    job = site.queue.put("stall", order)
    site.said(order, "inside")
    site.queue.revive(job)  # the stream takes it from the worker that is still at it
    for _ in range(3):
        site.happened(order, "busy")
    site.tell(order)
    site.happened(order, "completed", "duplicate")
    assert site.queue.result(job).startswith("charge-")
    assert site.effects(order) == ["charge"]
    assert site.left_over(f"events:{order}") == []  # one message was on its way, not many


@pytest.mark.row("J10")
def test_a_skipped_duplicate_is_logged_by_the_worker(site):
    order = site.order()
    for _ in range(2):
        site.queue.result(site.queue.put("charge", order, 40))
    assert site.line(order, "duplicate task skipped") == {
        "level": "DEBUG",
        "text": f"duplicate task skipped [charge/{order}]",
        "task_type": "charge",
        "idempotency_key": order,
    }


def test_protection_costs_two_round_trips(site):
    site.queue.result(site.queue.put("ticket", site.order(), 40))  # the server knows the scripts
    with site.store.client() as client, client.monitor() as monitor:
        jobs = [site.queue.put("ticket", site.order(), 40) for _ in range(8)]
        for job in jobs:
            site.queue.result(job)
        last = site.order()
        client.echo(last)
        seen = itertools.takewhile(lambda one: last not in one["command"], monitor.listen())
        sent = [one["command"] for one in seen if one["client_type"] != "lua"]
    asks = [one.split()[0] for one in sent if any(job in one for job in jobs)]
    assert asks == ["EVALSHA"] * 16
