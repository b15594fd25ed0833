"""The profile `webhook`: events that a provider sends again until they are accepted."""

import logging

import pytest
from prometheus_client import CollectorRegistry

from oncekey.http import WEBHOOK, presets
from oncekey.observe.prometheus import PrometheusObserver
from oncekey.observe.redaction import hashed

CACHED = {"cached": True, "message": "Request already processed"}
KEY = {"x-idempotency-key": "evt_1"}
MINUTE = 60_000_000


class TestWebhook:
    @pytest.fixture
    def site(self, serve):
        return serve(profile="webhook")

    @pytest.mark.row("W1")
    def test_the_key_is_required(self, site):
        for refused in (site.post(), site.post(headers={"x-idempotency-key": ""})):
            assert refused.status_code == 400
        assert not site.runs
        assert not site.store.calls

    @pytest.mark.row("W1")
    def test_an_event_that_is_sent_to_two_endpoints_is_processed_at_both(self, serve):
        site = serve(profile=presets.svix(None))
        for path in ("/orders/a", "/orders/b", "/orders/a?shop=1"):
            first, again = (site.post(path, headers={"svix-id": "msg_1"}) for _ in range(2))
            assert (first.status_code, again.json()) == (201, CACHED)
        assert len(site.runs) == 3

    @pytest.mark.row("W2")
    def test_a_new_delivery_locks_its_key_for_five_minutes_and_is_kept_for_a_day(self, site):
        first = site.start("/slow", headers=KEY)
        site.gate.until_inside()
        running = site.record()
        assert (running.scope, running.key, running.status) == (None, "evt_1", "running")
        assert running.lease_end - running.started == 5 * MINUTE
        site.gate.go_on.set()
        assert first.result().status_code == 201
        done = site.record()
        assert done.status == "completed"
        assert done.expires - done.finished == 24 * 60 * MINUTE

    @pytest.mark.row("W2")
    @pytest.mark.parametrize("status", [302, 400, 404, 409, 500])
    def test_after_anything_but_success_the_key_is_free(self, site, status):
        answers = [site.post(f"/status/{status}", headers=KEY) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [status, status]
        assert [answer.json()["run"] for answer in answers] == [1, 2]

    @pytest.mark.row("W2")
    def test_after_an_exception_the_key_is_free(self, site):
        assert [site.post("/boom", headers=KEY).status_code for _ in range(2)] == [500, 500]
        assert len(site.runs) == 2

    @pytest.mark.row("W3")
    def test_a_repeat_during_the_run(self, site):
        first = site.start("/slow", headers=KEY)
        site.gate.until_inside()
        refused = site.post("/slow", headers=KEY)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "5"
        assert refused.json() == {
            "error": "Request is currently being processed",
            "retry_after": 5,
        }
        site.gate.go_on.set()
        assert first.result().status_code == 201

    @pytest.mark.row("W4")
    def test_a_repeat_after_the_run(self, site):
        assert site.post(headers=KEY).status_code == 201
        again = site.post(headers=KEY)
        assert again.status_code == 200
        assert again.json() == CACHED
        assert again.headers["idempotent-replayed"] == "true"
        assert len(site.runs) == 1

    @pytest.mark.row("W4", "W8")
    def test_the_exact_first_answer_where_so_configured(self, serve):
        site = serve(profile=WEBHOOK.replace(replay="exact"))
        first, again = site.post(headers=KEY), site.post(headers=KEY)
        assert again.status_code == 201
        assert again.content == first.content

    @pytest.mark.row("W8")
    def test_any_number_of_instances_share_the_work(self, site, serve):
        others = [serve(profile="webhook", beside=site) for _ in range(3)]
        assert site.post(headers=KEY).status_code == 201
        assert [other.post(headers=KEY).json() for other in others] == [CACHED] * 3
        assert not any(other.runs for other in others)

    @pytest.mark.row("W8")
    def test_an_environment_has_its_own_lifetimes(self, serve, monkeypatch):
        monkeypatch.setenv("ONCEKEY_TTL", "1h")
        monkeypatch.setenv("ONCEKEY_LEASE", "10s")
        site = serve(profile="webhook")
        site.post(headers=KEY)
        assert site.record().expires - site.record().finished == 60 * MINUTE

    @pytest.mark.row("W8")
    def test_metrics_give_the_rate_of_repeats(self, site):
        registry = CollectorRegistry()
        site.observers.append(PrometheusObserver(registry))
        for _ in range(4):
            site.post(headers=KEY)
        found = {
            result: registry.get_sample_value("idempotency_check_total", {"result": result})
            for result in ("new", "duplicate")
        }
        assert found == {"new": 1, "duplicate": 3}

    def test_the_content_is_not_compared(self, site):
        site.post(headers=KEY, json={"attempt": 1})
        assert site.post(headers=KEY, json={"attempt": 2}).json() == CACHED

    @pytest.mark.row("W6")
    def test_with_the_store_out_of_reach_it_is_processed_and_a_warning_says_so(self, site, caplog):
        site.store.cut_off("claim", 100)
        with caplog.at_level(logging.WARNING, "oncekey"):
            assert site.post(headers=KEY).status_code == 201
        (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert hashed("evt_1") in warning.getMessage()

    @pytest.mark.row("W7")
    def test_nothing_of_the_body_is_kept(self, site):
        site.post("/mirror", headers=KEY, content=b"a secret of the customer")
        kept = site.record()
        assert b"secret" not in (kept.result or b"")
        assert len(kept.result or b"") < 10

    @pytest.mark.row("W7")
    def test_the_lifetime_limits_the_memory(self, site):
        site.post(headers=KEY)
        site.clock.advance("25h")
        assert not site.records()
        assert site.store.purge(0, 100) == 1

    @pytest.mark.row("W9")
    def test_a_handler_that_hangs_loses_its_lock_after_five_minutes(self, site, serve):
        other = serve(profile="webhook", beside=site)
        other.gate.go_on.set()
        hanging = site.start("/slow", headers=KEY)
        site.gate.until_inside()
        site.clock.advance("4min")
        assert other.post("/slow", headers=KEY).status_code == 429
        site.clock.advance("2min")
        assert other.post("/slow", headers=KEY).status_code == 201
        site.gate.go_on.set()
        assert hanging.result().json() == CACHED

    def test_a_stream_counts_as_processed(self, site):
        site.gate.go_on.set()
        assert site.post("/endless", headers=KEY).status_code == 200
        assert site.post("/endless", headers=KEY).json() == CACHED
