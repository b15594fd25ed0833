"""The behaviour of jobs, the same in every queue. Effects are counted in the ledger."""

import pytest

from tests.jobs.queues import FailedError
from tests.leases import end_lease
from tests.patience import until


class TestDelivery:
    @pytest.mark.row("J1", "J6")
    def test_a_second_job_with_the_key_hands_back_the_first_result(self, site):
        order = site.order()
        first = site.queue.result(site.queue.put("charge", order, 40))
        second = site.queue.result(site.queue.put("charge", order, 40))
        assert first == second == {"order": order, "amount": 40, "receipt": first["receipt"]}
        assert site.effects(order) == ["charge"]

    @pytest.mark.row("J6")
    def test_one_job_that_is_delivered_twice_runs_once(self, site):
        order = site.order()
        job = site.queue.put_twice("ticket", order, 40)
        site.happened(job, "completed", "duplicate")
        assert site.queue.result(job)["order"] == order
        assert site.effects(order) == ["charge"]

    @pytest.mark.row("J5")
    def test_two_jobs_with_ids_of_their_own_are_two(self, site):
        order = site.order()
        jobs = [site.queue.put("ticket", order, 40) for _ in range(2)]
        receipts = {site.queue.result(job)["receipt"] for job in jobs}
        assert len(receipts) == 2
        assert site.effects(order) == ["charge", "charge"]

    @pytest.mark.row("J1")
    def test_two_workers_at_once_have_one_effect_and_one_result(self, site):
        order = site.order()
        jobs = [site.queue.put("stall", order) for _ in range(2)]
        site.said(order, "inside")
        # The other worker is told to come back, more often than any queue tries a job that fails.
        site.happened(order, *["busy"] * 8)
        claimed = site.once.get(order, scope="stall")
        site.settled(
            lambda: site.once.get(order, scope="stall").lease_end > claimed.lease_end + 600_000
        )  # renewed twice: nobody takes over
        site.tell(order)
        assert len({site.queue.result(job) for job in jobs}) == 1
        assert site.effects(order) == ["charge"]

    @pytest.mark.row("J12")
    def test_a_job_that_fails_is_tried_again_with_its_notes_and_steps(self, site):
        order = site.order()
        _, seen, _ = site.queue.result(site.queue.put("flaky", order, 2))
        assert seen == [1, 2, 3]
        assert site.effects(order) == ["reserve", "charge"]

    @pytest.mark.row("J2")
    def test_when_the_ttl_is_over_the_key_is_free(self, site):
        order = site.order()
        first = site.queue.result(site.queue.put("brief", order, 40))
        until(lambda: site.queue.result(site.queue.put("brief", order, 40)) != first)
        assert site.effects(order) == ["charge", "charge"]


class TestEnqueue:
    @pytest.mark.row("J9")
    def test_a_job_that_waits_is_not_enqueued_again(self, site):
        order = site.order()
        first = site.queue.put_once("stall", order)
        site.said(order, "inside")
        second = site.queue.put_once("stall", order)
        assert (first.duplicate, second.duplicate) == (False, True)
        assert first.handle == second.handle
        site.tell(order)
        assert site.queue.result(second.handle).startswith("charge-")
        assert site.effects(order) == ["charge"]

    @pytest.mark.row("J9")
    def test_a_job_that_is_finished_may_be_enqueued_again(self, site):
        order = site.order()
        first = site.queue.put_once("charge", order, 40)
        receipt = site.queue.result(first.handle)
        sent = [first]

        def put_again():
            sent.append(site.queue.put_once("charge", order, 40))
            return sent[-1].handle != first.handle

        until(put_again)  # it is freed a moment after its result is there
        again = sent[-1]
        assert not again.duplicate
        assert site.queue.result(again.handle) == receipt
        assert site.effects(order) == ["charge"]


class TestKilled:
    @pytest.mark.row("J1")
    def test_a_job_whose_worker_is_killed_is_taken_over(self, site):
        order = site.order()
        survivors = site.workers[:]
        for worker in survivors[1:]:  # the job must go to the one that is killed
            worker.stop()
        job = site.queue.put("stall", order)
        site.said(order, "inside")
        survivors[0].kill()
        end_lease(site.once.store, order, scope="stall")
        site.workers.clear()
        for _ in survivors:
            site.start()
        site.queue.revive(job)
        site.said(order, "inside")
        site.tell(order)
        assert site.queue.result(job).startswith("charge-")
        assert site.effects(order) == ["charge"]  # the step of the killed attempt is not repeated


class TestStoreDown:
    @pytest.mark.row("J7")
    def test_open_runs_and_closed_waits(self, site):
        opened, closed = site.order(), site.order()
        with site.without_store():
            receipt = site.queue.result(site.queue.put("charge", opened, 40))
            job = site.queue.put("strict", closed, 40)
            assert site.line(closed, "idempotency check failed")["level"] == "ERROR"
            assert site.effects(closed) == []
        assert site.effects(opened) == ["charge"]
        assert receipt["order"] == opened
        line = site.line(opened, "idempotency check failed, processing anyway")
        assert (line["level"], line["task_type"]) == ("WARNING", "charge")
        if site.queue.puts_back:
            assert site.queue.result(job)["order"] == closed
            assert site.effects(closed) == ["charge"]
        else:
            with pytest.raises(FailedError, match="StoreError"):
                site.queue.result(job)
            assert site.effects(closed) == []
