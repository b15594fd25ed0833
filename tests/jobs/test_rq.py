"""What RQ alone can do, with real workers: returned retries, limits, children, other queues."""

import logging
import os
import signal
import subprocess
import threading

import pytest
from rq import Callback, Queue, Repeat, Retry
from rq.command import send_stop_job_command
from rq.scheduler import RQScheduler

from oncekey import ConfigurationError, Policy
from oncekey.jobs import by_task_id
from oncekey.jobs.rq import enqueue_once
from tests.jobs.conftest import group as one_process
from tests.jobs.queues import FailedError
from tests.jobs.queues import rq as module
from tests.jobs.site import ROOT
from tests.jobs.work import BY_ORDER
from tests.leases import end_lease
from tests.patience import PATIENCE

pytestmark = one_process("rq")


@pytest.fixture
def site(open_site):
    return open_site("rq")


@pytest.fixture
def elsewhere(site):
    """Somebody else is at a job about an order, until the test says so."""

    class Elsewhere:
        def __init__(self):
            self.order = site.order()
            self.end = threading.Event()

        def begin(self, job):
            begun = threading.Event()
            self.thread = threading.Thread(target=self._work, args=(job, begun))
            self.thread.start()
            assert begun.wait(PATIENCE)

        def _work(self, job, begun):
            with site.once.options(scope=job).attempt(self.order) as attempt:
                begun.set()
                assert self.end.wait(PATIENCE)
                attempt.release("it was not done")

    found = Elsewhere()
    yield found
    found.end.set()
    found.thread.join()


# What goes on from a job


@pytest.mark.row("J6")
def test_a_dependent_goes_on_from_a_duplicate(site):
    order = site.order()
    found = []
    for _ in range(2):
        job = site.queue.send("charge", order, 40)
        follow = "tests.jobs.rq_work.follow"
        found.append(site.queue.result(site.queue.native.enqueue(follow, depends_on=job).id))
    assert found[0] == found[1]
    assert site.effects(order) == ["charge"]


# Retries and limits


@pytest.mark.row("J12")
def test_a_returned_retry_is_no_result_and_waiting_costs_none(site, elsewhere):
    elsewhere.begin("ask_again")
    job = site.queue.put("ask_again", elsewhere.order)
    for _ in range(3):
        site.happened(elsewhere.order, "busy")
    elsewhere.end.set()
    # Attempt 1 was elsewhere, 2 asked for the only retry there is, which no waiting has used up.
    assert site.queue.result(job) == 3
    assert site.effects(elsewhere.order) == ["charge"]


def test_each_round_of_a_repeated_job_runs(site):
    order = site.order()
    job = site.queue.send("ticket", order, 40, repeat=Repeat(times=2)).id
    for left in (2, 1, 0):
        site.happened(f"{job}:{left}", "new", "completed")
    assert site.effects(order) == ["charge"] * 3


def test_a_job_without_retries_waits_too(site):
    order = site.order()
    jobs = [site.queue.send("patient", order, retry=None, job_id=order).id for _ in range(2)]
    site.said(order, "inside")
    for _ in range(3):
        site.happened(order, "busy")
    site.tell(order)
    site.happened(order, "duplicate")
    assert site.queue.result(jobs[0]).startswith("charge-")
    assert site.effects(order) == ["charge"]


def test_a_time_limit_leaves_the_outcome_open(site):
    job = site.queue.send("outlast", site.order(), job_timeout=1)
    assert site.queue.result(job.id) is True


@pytest.mark.row("J1")
def test_a_child_that_is_killed_is_taken_over(site):
    order = site.order()
    job = site.queue.forking.enqueue(f"{module.__name__}.die", order, retry=Retry(max=1)).id
    assert site.queue.result(job).startswith("charge-")
    site.happened(job, "taken_over")
    assert site.effects(order) == ["charge"]


@pytest.mark.row("J1")
def test_a_child_that_outlives_its_worker_is_not_run_over(site):
    order = site.order()
    worker = site.workers.pop(1)  # the one that forks
    queue = site.queue.forking
    job = queue.enqueue(f"{module.__name__}.patient", order, retry=Retry(max=1)).id
    site.said(order, "inside")
    os.kill(worker.process.pid, signal.SIGKILL)
    assert worker.process.wait(PATIENCE) == -signal.SIGKILL
    for _ in range(2):  # one that does not fork comes first
        site.start()
    queue.started_job_registry.cleanup(module.FAR)
    site.happened(job, "busy")
    site.tell(order)
    site.happened(job, "completed", "duplicate")
    assert site.queue.result(job).startswith("charge-")
    assert site.effects(order) == ["charge"]


def test_where_a_scheduler_runs_a_job_waits_there(site, elsewhere):
    scheduler = RQScheduler(["planned"], site.queue.client)
    scheduler.acquire_locks()
    elsewhere.begin("ask_again")
    planned = Queue("planned", connection=site.queue.client)
    job = planned.enqueue(f"{module.__name__}.ask_again", elsewhere.order)
    words = site.queue.command("rq.SimpleWorker", "--burst", "planned")
    environment = {**os.environ, **site.environment}
    subprocess.run(words, cwd=ROOT, env=environment, check=True, timeout=PATIENCE)
    scheduler.release_locks()
    job.refresh()
    assert (job.is_scheduled, job.number_of_retries) == (True, 0)
    assert job.id in planned.scheduled_job_registry


# Coroutines, and jobs that run where they are enqueued


def test_a_coroutine_runs_once(site):
    order = site.order()
    found = [site.queue.result(site.queue.put("ask", order)) for _ in range(2)]
    assert found[0] == found[1] == [found[0][0], 1]
    assert site.effects(order) == ["charge"]


def test_a_coroutine_leaves_no_connection_behind(site):
    with site.store.client() as client:
        open_before = len(client.client_list())
        for _ in range(6):  # RQ makes a loop for each, and never closes it
            site.queue.result(site.queue.put("ask", site.order()))
        site.settled(lambda: len(client.client_list()) <= open_before + 1)


def test_a_job_in_place_is_protected_and_has_no_queue_to_wait_in(site, elsewhere):
    in_place = Queue("in place", connection=site.queue.client, is_async=False)
    elsewhere.begin("charge")
    job = in_place.enqueue(module.charge, elsewhere.order, 40)
    assert "InProgressError" in job.latest_result().exc_string
    elsewhere.end.set()
    elsewhere.thread.join()
    jobs = [in_place.enqueue(module.twice, elsewhere.order) for _ in range(2)]
    assert [one.return_value() for one in jobs] == [1, 1]


def test_a_function_that_is_not_the_jobs_own_has_no_id(site):
    in_place = Queue("in place", connection=site.queue.client, is_async=False)
    job = in_place.enqueue("tests.jobs.rq_work.around", site.order())
    assert "ticket runs inside the job" in job.latest_result().exc_string


def test_a_job_that_calls_its_own_function_calls_a_function(site):
    in_place = Queue("in place", connection=site.queue.client, is_async=False)
    assert in_place.enqueue(module.count, 3).return_value() == 3


def test_a_duplicate_whose_result_was_not_kept_is_done(site, caplog):
    in_place = Queue("in place", connection=site.queue.client, is_async=False)
    order = site.order()
    assert in_place.enqueue(module.pair, order).return_value() == (1, 2)
    with caplog.at_level(logging.WARNING, "oncekey"):
        assert in_place.enqueue(module.pair, order).return_value() is None
    assert "returns None" in caplog.text
    heard = in_place.enqueue(module.pair, order, on_success=Callback(print))
    assert "ResultNotKeptError" in heard.latest_result().exc_string


# When another job may be enqueued


@pytest.mark.row("J9")
def test_a_job_that_is_tried_again_is_still_enqueued(site):
    order = site.order()
    options = {"key": BY_ORDER, "retry": Retry(max=1)}
    first = enqueue_once(site.queue.native, module.halt, (order,), **options)
    site.said(order, "inside")
    again = enqueue_once(site.queue.native, module.halt, (order,), **options)
    assert (again.duplicate, again.handle) == (True, first.handle)
    site.tell(order)
    site.queue.result(first.handle.id)


@pytest.mark.row("J9")
def test_a_job_that_is_repeated_is_still_enqueued(site):
    order = site.order()
    options = {"key": BY_ORDER, "repeat": Repeat(times=1, interval=3600)}
    first, again = (
        enqueue_once(site.queue.native, module.charge, (order, 40), **options) for _ in "12"
    )
    site.settled(lambda: first.handle.get_status() == "scheduled")  # its first round is done
    later = enqueue_once(site.queue.native, module.charge, (order, 40), **options)
    assert again.duplicate
    assert later.duplicate
    first.handle.delete()


def test_from_its_start_another_may_be_enqueued(site):
    order = site.order()
    first = site.queue.put_once("patient_started", order)
    site.said(order, "inside")
    second = site.queue.put_once("patient_started", order)
    assert not second.duplicate
    site.said(order, "inside")
    site.tell(order, 2)
    assert site.queue.result(first.handle) != site.queue.result(second.handle)


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


@pytest.mark.row("J9")
def test_a_job_that_is_gone_is_enqueued_anew_unless_its_rule_outlives_it(site):
    nobody = Queue("nobody", connection=site.queue.client)
    for until, duplicate in (("finished", False), ("ttl", True)):
        order = site.order()
        options = {"key": BY_ORDER, "until": until, "policy": Policy(ttl="1h")}
        first = enqueue_once(nobody, module.charge, (order,), {"amount": 1}, **options).handle
        first.delete()
        again = enqueue_once(nobody, module.charge, (order,), {"amount": 1}, **options)
        assert (again.duplicate, again.handle.id == first.id) == (duplicate, duplicate)


@pytest.mark.row("J8")
@pytest.mark.row("J9")
@pytest.mark.parametrize("end", ["cancelled", "stopped"])
def test_a_job_that_was_given_up_is_over(site, end):
    order = site.order()
    queue = Queue("nobody", connection=site.queue.client) if end == "cancelled" else None
    queue = queue or site.queue.forking

    def put():
        return enqueue_once(queue, module.stall, (order,), key=BY_ORDER)

    first = put()
    if end == "cancelled":
        first.handle.cancel()
    else:
        site.said(order, "inside")
        send_stop_job_command(site.queue.client, first.handle.id)
        site.settled(lambda: first.handle.get_status() == "stopped")
        end_lease(site.once.store, order, scope="stall")
    second = put()
    assert (second.duplicate, second.handle.id != first.handle.id) == (False, True)
    if end != "cancelled":
        site.tell(order)
        site.queue.result(second.handle.id)


def test_what_cannot_be_enqueued_once_is_refused(site):
    nobody = Queue("never", connection=site.queue.client)
    hidden = module.once_job(site.once)(module.Queue.close)  # a worker finds what is below it
    for function, options, says in (
        (len, {"key": "a"}, "is not protected"),
        (hidden, {"key": "a"}, "does not find"),
        (module.charge, {"key": by_task_id}, "made of arguments"),
        (module.charge, {"key": "a", "job_id": "a"}, "takes no job_id"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            enqueue_once(nobody, function, ("a", 1), **options)
    assert nobody.is_empty()
