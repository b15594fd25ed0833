"""What Celery alone can do: canvas, its own retries and limits, redelivery of what still runs."""

import itertools
import sys
from datetime import UTC, datetime

import pytest
from celery import chain, chord, group, uuid  # type: ignore[import-untyped]  # celery has no types

from oncekey.jobs import enqueue_once
from tests.jobs.conftest import group as one_process
from tests.jobs.queues import FailedError
from tests.jobs.site import Worker
from tests.leases import end_lease
from tests.patience import PATIENCE, until

pytestmark = one_process("celery")


@pytest.fixture
def site(open_site):
    return open_site("celery")


@pytest.fixture
def tasks(site):
    return site.queue.app.tasks


# What goes on from a job


def test_a_chain_goes_on_from_a_duplicate(site, tasks):
    order = site.order()
    steps = chain(tasks["charge"].s(order, 40), tasks["receipt"].s())
    first, second = (steps.apply_async().get(PATIENCE) for _ in range(2))
    assert first == second
    assert site.effects(order) == ["charge"]


def test_a_group_has_the_first_result_in_every_place(site, tasks):
    order = site.order()
    found = group(tasks["charge"].s(order, 40) for _ in range(3)).apply_async().get(PATIENCE)
    assert found[0] == found[1] == found[2]
    assert site.effects(order) == ["charge"]


@pytest.mark.row("J6")
def test_a_chord_whose_header_holds_a_duplicate_completes(site, tasks):
    order, other = site.order(), site.order()
    before = site.queue.result(site.queue.put("charge", order, 40))
    header = [tasks["charge"].s(one, 40) for one in (order, other, order)]
    found = chord(header, tasks["receipts"].s()).apply_async().get(PATIENCE)
    assert found[0] == found[2] == before["receipt"] != found[1]
    assert site.effects(order) == site.effects(other) == ["charge"]


def test_a_link_of_a_duplicate_is_followed(site, tasks):
    order, linked = site.order(), site.order()
    first = site.queue.put_once("stall", order)
    site.said(order, "inside")
    sent = tasks["stall"].apply_async((order,), link=tasks["write_down"].s(linked))
    assert not sent.duplicate  # who wants something to go on from a job gets one of its own
    site.tell(order)
    receipt = sent.get(PATIENCE)
    assert receipt == site.queue.result(first.handle)
    site.settled(lambda: site.effects(linked) == [receipt])
    assert site.effects(order) == ["charge"]


def test_a_kept_failure_fails_the_duplicate_the_same_way(site, tasks):
    order, linked = site.order(), site.order()
    for _ in range(2):
        on_error = tasks["write_error"].s(linked)
        sent = tasks["decline"].apply_async((order,), link_error=on_error)
        with pytest.raises(FailedError, match=f"DeclinedError.*{order}"):
            site.queue.result(sent.id)
    assert site.effects(order) == ["decline"]
    site.settled(lambda: site.effects(linked) == ["DeclinedError", "DeclinedError"])


# Redelivery


@pytest.mark.row("J1")
def test_a_task_that_outlasts_the_visibility_timeout_runs_once(site):
    order = site.order()
    job = site.queue.put("patient", order)
    site.said(order, "inside")
    site.queue.revive(job)
    for _ in range(5):  # it comes again and again; a retry of it would be one too many
        site.happened(job, "busy")
    site.tell(order)
    site.happened(job, "completed", "duplicate")
    assert site.queue.result(job).startswith("charge-")
    assert site.effects(order) == ["charge"]
    with site.broker.client(db=2) as broker:
        site.settled(lambda: not broker.llen("celery") and not broker.hlen("unacked"))
    assert site.left_over(f"events:{job}") == []  # one message was on its way, not many


def test_a_child_of_the_pool_that_is_killed_is_taken_over(site):
    order = site.order()
    job = site.queue.put("die", order)
    assert site.queue.result(job).startswith("charge-")
    site.happened(order, "taken_over")
    assert site.effects(order) == ["charge"]


def test_a_result_that_cannot_be_recorded_in_time_is_recorded_later(site):
    order = site.order()
    job = site.queue.put("strict_stall", order)
    site.said(order, "inside")
    with site.store_paused():
        site.tell(order)
        site.happened(order, "not_recorded")
        receipt = site.queue.result(job)
    site.settled(lambda: site.once.get(order, scope="strict_stall").status == "completed")
    assert site.queue.result(site.queue.put("strict_stall", order)) == receipt
    assert site.effects(order) == ["charge"]


def test_two_threads_of_one_worker_have_one_effect(site):
    order, app = site.order(), site.queue.app
    with site.another("--pool=threads", "--concurrency=2", "--queues=threads"):
        jobs = [app.send_task("stall", (order,), queue="threads").id for _ in range(2)]
        site.said(order, "inside")
        site.happened(order, "busy")
        site.tell(order)
        assert len({site.queue.result(job) for job in jobs}) == 1
    assert site.effects(order) == ["charge"]


# Celery's own retries and limits


@pytest.mark.row("J12")
def test_a_retry_that_the_task_asks_for_runs_with_its_notes(site):
    order = site.order()
    assert site.queue.result(site.queue.put("ask_again", order)) == [False, True]


def test_a_job_that_sends_itself_again_and_goes_on_runs_again(site):
    """`self.retry(throw=False)`: the first run ends as if it were the last."""
    order = site.order()
    site.queue.put("send_again", order)
    until(lambda: getattr(site.once.get(order, scope="send_again"), "status", "") == "completed")
    assert site.effects(order) == ["charge", "charge"]
    assert site.queue.result(site.queue.put("send_again", order)) == "done"
    assert site.effects(order) == ["charge", "charge"]


def test_a_soft_time_limit_leaves_the_outcome_open(site):
    order = site.order()

    def cut_off():
        sent = site.queue.app.send_task("outlast", (order,), soft_time_limit=1)
        with pytest.raises(FailedError, match="SoftTimeLimitExceeded"):
            site.queue.result(sent.id)
        return site.once.get(order, scope="outlast")  # or it was too slow to begin

    until(cut_off)
    assert site.queue.result(site.queue.put("outlast", order)) is True


# When another job may be enqueued


@pytest.mark.row("J9")
def test_a_job_that_is_tried_again_is_still_enqueued(site):
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
    site.happened(first.handle, "released")
    site.settled(lambda: site.once.get(order, scope=f"enqueue:{job}") is None or not freed)
    assert site.queue.put_once(job, order).duplicate is not freed


def test_a_job_whose_process_died_is_over(site):
    order = site.order()
    first = site.queue.put_once("perish", order)
    with pytest.raises(FailedError, match="WorkerLostError"):
        site.queue.result(first.handle)
    site.settled(lambda: site.once.get(order, scope="enqueue:perish") is None)


@pytest.mark.row("J9")
@pytest.mark.parametrize("end", ["expired", "revoked", "terminated"])
def test_a_job_that_was_given_up_is_over(site, tasks, end):
    order = site.order()
    if end == "terminated":
        first = site.queue.put_once("stall", order)
        site.said(order, "inside")
        site.queue.app.control.revoke(first.handle, terminate=True, signal="SIGKILL")
    elif end == "revoked":  # every worker has heard of it when it comes
        first = uuid()
        reply = site.queue.app.control.revoke(first, reply=True, timeout=PATIENCE, limit=2)
        assert len(reply) == 2
        headers = tagged(site, order, first)
        site.queue.app.send_task("stall", (order,), task_id=first, headers=headers)
    else:
        tasks["stall"].apply_async((order,), expires=datetime(2020, 1, 1, tzinfo=UTC))
    site.settled(lambda: site.once.get(order, scope="enqueue:stall") is None)
    if end == "terminated":
        end_lease(site.once.store, order, scope="stall")


def tagged(site, order, handle):
    """The headers of a job that was enqueued under this id."""
    found = []
    enqueue_once(site.once, order, lambda headers: found.append(headers) or handle, name="stall")
    return found[0]


@pytest.mark.row("J9")
def test_a_job_that_a_hard_time_limit_ended_is_over(site, tasks):
    order = site.order()
    first = tasks["brief_stall"].apply_async((order,), time_limit=1)
    with pytest.raises(FailedError, match="TimeLimitExceeded"):
        site.queue.result(first.id)
    second = site.queue.put_once("brief_stall", order)
    assert not second.duplicate
    # Celery tells of the limit before it kills: the first job may still hear one word.
    site.tell(order, times=2)
    site.queue.result(second.handle)


# Schedulers


def test_two_schedulers_enqueue_one_job_in_a_period(site, tmp_path):
    """Each beat sends the job again and again."""
    words = [sys.executable, "-m", "celery", "-A", "tests.jobs.queues.celery", "beat"]
    beats = [
        Worker(
            [*words, "--pidfile=", f"--schedule={tmp_path / str(number)}", "--loglevel=INFO"],
            site.environment,
            tmp_path / f"beat-{number}.log",
        )
        for number in range(2)
    ]
    try:
        logs = [tmp_path / f"beat-{number}.log" for number in range(2)]
        until(lambda: all(log.read_text().count("Sending due task") > 2 for log in logs))
    finally:
        for beat in beats:
            beat.stop()
    last = site.order()
    site.queue.result(site.queue.put("charge", last, 1))  # what was sent before is done
    site.settled(lambda: site.effects("every hour") == ["charge"])


# What operators see


@pytest.mark.row("J10")
def test_a_skipped_duplicate_is_logged_and_counted(site):
    order = site.order()
    before = {result: checks(site, result) for result in ("new", "duplicate")}
    for _ in range(2):
        site.queue.result(site.queue.put("charge", order, 40))
    site.happened(order, "duplicate")
    assert site.line(order, "duplicate task skipped") == {
        "level": "DEBUG",
        "text": f"duplicate task skipped [charge/{order}]",
        "task_type": "charge",
        "idempotency_key": order,
    }
    assert not {"new", "duplicate"} & set(site.left_over(f"events:{order}"))  # one of each
    # The workers may still be at what another test has left in the queue, and count that as well.
    assert all(checks(site, result) >= seen + 1 for result, seen in before.items())
    assert site.metric("idempotency_check_duration_seconds_count") >= 2


@pytest.mark.row("J7", "J10")
def test_a_check_that_failed_is_counted(site):
    before = checks(site, "error")
    order = site.order()
    with site.without_store():
        site.queue.result(site.queue.put("charge", order, 40))
        site.happened(order, "unprotected")
    assert checks(site, "error") >= before + 1


def checks(site, result):
    return site.metric(f'idempotency_check_total{{result="{result}"}}')


def test_protection_costs_two_round_trips(site):
    site.queue.result(site.queue.put("ticket", site.order(), 40))  # the server knows the scripts
    with site.store.client() as client, client.monitor() as monitor:
        jobs = [site.queue.put("ticket", site.order(), 40) for _ in range(8)]
        for job in jobs:
            site.queue.result(job)
        last = site.order()
        client.echo(last)
        sent = list(itertools.takewhile(lambda one: last not in one, asked(monitor)))
    asks = [one.split()[0] for one in sent if any(job in one for job in jobs)]
    assert asks == ["EVALSHA"] * 16
    # What another test has left in the queue may be served meanwhile, under keys of its own.
    ours = [one for one in sent if "idempotency:" not in one or "idempotency:ticket" in one]
    assert {one.split()[0] for one in ours} <= {"EVALSHA", "HELLO", "CLIENT", "INFO"}, ours


def asked(monitor):
    """What clients send to the server; what its scripts do inside is no round trip."""
    for seen in monitor.listen():
        if seen["client_type"] != "lua":
            yield seen["command"]
