"""Requests that arrive together, and clients that do not wait."""

import pytest

from oncekey.observe.redaction import Redaction
from tests.http.suite.site import Gate
from tests.patience import PATIENCE


class TestTogether:
    def test_a_repeat_during_the_run_is_told_to_come_back(self, site):
        first = site.start("/slow", "k")
        site.gate.until_inside()
        refused = site.post("/slow", "k")
        assert refused.status_code == 409
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["content-language"] == "en"
        assert refused.json()["type"] == "urn:oncekey:in-progress"
        assert refused.json()["status"] == 409
        assert refused.json()["retry_after"] == 1
        [busy] = site.told("busy")
        assert refused.json()["instance"] == f"urn:oncekey:{Redaction(None).told(busy).key}"
        site.gate.go_on.set()
        assert first.result().status_code == 201
        assert site.post("/slow", "k").content == first.result().content
        assert len(site.runs) == 1

    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_a_repeat_waits_where_so_configured(self, serve, claim):
        site = serve(scope=None, wait=PATIENCE, claim=claim)
        first = site.start("/slow", "k")
        site.gate.until_inside()
        others = [site.start("/slow", "k") for _ in range(3)]
        site.gate.go_on.set()
        assert {other.result().content for other in others} == {first.result().content}
        assert all(other.result().headers["idempotent-replayed"] for other in others)
        assert len(site.runs) == 1

    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_the_one_that_waited_runs_when_the_first_fails(self, serve, claim):
        site = serve(scope=None, wait=PATIENCE, claim=claim)
        answers = [site.start("/boom", "k") for _ in range(4)]
        assert {answer.result().status_code for answer in answers} == {500}
        assert len(site.runs) == 4

    def test_of_many_at_once_one_runs(self, site):
        answers = [site.start("/slow", "k") for _ in range(12)]
        site.gate.until_inside()
        site.until(lambda: sum(answer.done() for answer in answers) == 11)
        site.gate.go_on.set()
        statuses = sorted(answer.result().status_code for answer in answers)
        assert statuses == [201, *[409] * 11]
        assert len(site.runs) == 1

    def test_other_keys_do_not_wait(self, site):
        first = site.start("/slow", "k")
        site.gate.until_inside()
        assert site.post("/orders", "other").status_code == 201
        site.gate.go_on.set()
        assert first.result().status_code == 201

    def test_when_the_client_is_gone_the_work_is_finished_and_kept(self, site):
        connection = site.connect("POST /slow HTTP/1.1\nIdempotency-Key: k", b'{"item": "tea"}')
        site.gate.until_inside()
        connection.close()
        site.gate.go_on.set()
        site.until(lambda: site.record().status == "completed")
        again = site.post("/slow", "k", content=b'{"item": "tea"}')
        assert again.json() == {"order": 1, "for": None}
        assert again.headers["idempotent-replayed"] == "true"
        assert len(site.runs) == 1

    def test_a_client_that_goes_before_its_body_is_sent_leaves_no_record(self, site):
        head = "POST /orders HTTP/1.1\nIdempotency-Key: k\nContent-Length: 100"
        site.connect(head).close()
        assert site.post(key="other").status_code == 201
        assert site.record().key == "other"
        assert len(site.runs) == 1


class TestHung:
    @pytest.mark.row("W9")
    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_a_handler_that_hangs_loses_its_key_in_its_own_process(self, serve, claim):
        site = serve(scope=None, heartbeat=False, lease="5min", claim=claim)
        hung, hangs = site.start("/slow", "k"), site.gate
        hangs.until_inside()
        assert site.post("/slow", "k").status_code == 409
        site.clock.advance("6min")
        site.gate = Gate()
        site.gate.go_on.set()
        site.until(lambda: site.post("/slow", "k").status_code == 201)
        again = site.post("/slow", "k")
        hangs.go_on.set()
        assert hung.result().content == again.content
        assert len(site.runs) == 2


class TestTwoProcesses:
    """Two sites on one store share nothing else."""

    def test_a_repeat_may_come_to_either(self, site, serve):
        other = serve(beside=site, **site.settings)
        first = site.post(key="k")
        assert other.post(key="k").content == first.content
        assert not other.runs

    def test_during_the_run_the_other_refuses(self, site, serve):
        other = serve(beside=site, **site.settings)
        first = site.start("/slow", "k")
        site.gate.until_inside()
        assert other.post("/slow", "k").status_code == 409
        site.gate.go_on.set()
        assert first.result().status_code == 201

    def test_where_it_was_taken_over_the_winner_answers_both(self, site, serve):
        other = serve(beside=site, **site.settings)
        first = site.start("/slow", "k", json={"item": "tea"})
        site.gate.until_inside()
        site.clock.advance("6min")  # nobody has renewed it
        other.gate.go_on.set()
        winner = other.post("/slow", "k", json={"item": "tea"})
        assert winner.status_code == 201
        site.gate.go_on.set()
        assert first.result().content == winner.content
        assert first.result().headers["idempotent-replayed"] == "true"
        assert site.told("lost")
        assert not site.told("released")

    def test_where_the_winner_still_runs_the_outcome_is_not_known(self, site, serve):
        other = serve(beside=site, **site.settings)
        first = site.start("/slow", "k")
        site.gate.until_inside()
        site.clock.advance("6min")
        winner = other.start("/slow", "k")
        other.gate.until_inside()
        site.gate.go_on.set()
        assert first.result().status_code == 409
        assert first.result().json()["type"] == "urn:oncekey:outcome-unknown"
        assert not site.told("released")
        other.gate.go_on.set()
        assert winner.result().status_code == 201
