"""What Dramatiq alone can do, with real workers: pipelines, groups, its limits and coroutines."""

import pytest
from dramatiq import group, pipeline

from tests.jobs.conftest import group as one_process
from tests.jobs.queues import FailedError
from tests.patience import PATIENCE

pytestmark = one_process("dramatiq")


@pytest.fixture
def site(open_site):
    return open_site("dramatiq")


@pytest.fixture
def actors(site):
    return site.queue.broker.actors


# What goes on from a message


@pytest.mark.row("J6")
def test_a_pipeline_goes_on_from_a_duplicate(site, actors):
    order = site.order()
    steps = [actors["charge"].message(order, 40), actors["receipt"].message()]
    found = [
        pipeline([one.copy(message_id=f"{order}-{run}") for one in steps], broker=site.queue.broker)
        .run()
        .get_result(block=True, timeout=int(PATIENCE * 1000))
        for run in range(2)
    ]
    assert found[0] == found[1]
    assert site.effects(order) == ["charge"]


@pytest.mark.row("J6")
def test_a_group_with_a_duplicate_completes(site, actors):
    order, other, done = site.order(), site.order(), site.order()
    before = site.queue.result(site.queue.put("charge", order, 40))
    members = [actors["charge"].message(one, 40) for one in (order, other)]
    jobs = group(members, broker=site.queue.broker)
    jobs.add_completion_callback(actors["write_down"].message(done))
    found = list(jobs.run().get_results(block=True, timeout=int(PATIENCE * 1000)))
    assert found[0] == before != found[1]
    site.said(done, "completed")
    assert site.effects(order) == site.effects(other) == ["charge"]


# Retries and limits


@pytest.mark.row("J1")
def test_a_message_in_progress_elsewhere_waits_without_a_retry_to_spend(site):
    order = site.order()
    jobs = [site.queue.put("patient", order) for _ in range(2)]
    site.said(order, "inside")
    for _ in range(3):
        site.happened(order, "busy")
    site.tell(order)
    assert len({site.queue.result(job) for job in jobs}) == 1
    assert site.effects(order) == ["charge"]


def test_a_time_limit_leaves_the_outcome_open(site):
    jobs = [site.queue.put(name, site.order()) for name in ("outlast", "outlast_async")]
    assert [site.queue.result(job) for job in jobs] == [True, True]


@pytest.mark.row("J12")
def test_a_coroutine_that_asks_for_a_retry_runs_again_with_its_steps(site):
    order = site.order()
    receipt, attempts = site.queue.result(site.queue.put("ask", order))
    assert (receipt[:7], attempts) == ("charge-", 2)
    assert site.effects(order) == ["charge"]


# When another message may be enqueued


@pytest.mark.row("J9")
def test_a_message_that_is_tried_again_is_still_enqueued(site):
    order = site.order()
    first = site.queue.put_once("halt", order)
    site.said(order, "inside")
    assert site.queue.put_once("halt", order).duplicate
    site.tell(order)
    site.queue.result(first.handle)


@pytest.mark.row("J9")
def test_from_its_start_another_may_be_enqueued(site):
    order = site.order()
    first = site.queue.put_once("patient_started", order)
    site.said(order, "inside")
    second = site.queue.put_once("patient_started", order)
    assert not second.duplicate
    site.tell(order)
    assert site.queue.result(first.handle) == site.queue.result(second.handle)


@pytest.mark.row("J9")
@pytest.mark.parametrize(("job", "freed"), [("break_finished", True), ("break_succeeded", False)])
def test_after_a_failure_the_rule_decides(site, job, freed):
    order = site.order()
    first = site.queue.put_once(job, order)
    with pytest.raises(FailedError, match="ValueError"):
        site.queue.result(first.handle)
    site.happened(order, "released")
    site.settled(lambda: site.once.get(order, scope=f"enqueue:{job}") is None or not freed)
    assert site.queue.put_once(job, order).duplicate is not freed
