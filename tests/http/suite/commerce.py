"""The protocols by which agents buy: ACP and UCP, as their texts and conformance tests have it."""

import pytest

CLAIMS = ["first", "handler"]


class TestAgenticCommerce:
    """ACP: a key on every POST, and errors of its own flat shape."""

    def test_a_key_is_required(self, serve):
        refused = serve(profile="acp", scope=None).post()
        assert refused.status_code == 400
        assert refused.json() == {
            "type": "invalid_request",
            "code": "idempotency_key_required",
            "message": "the header Idempotency-Key is missing; send a key of 1 to 255 characters",
        }

    def test_a_key_of_more_than_255_characters_is_refused(self, serve):
        site = serve(profile="acp", scope=None)
        assert site.post(key="k" * 255).status_code == 201
        refused = site.post(key="k" * 256)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid")

    @pytest.mark.parametrize("claim", CLAIMS)
    def test_a_repeat_gets_the_first_answer_and_its_key_back(self, serve, claim):
        site = serve(profile="acp", scope=None, claim=claim)
        first, again = (site.post(key="k") for _ in range(2))
        assert (again.status_code, again.content) == (201, first.content)
        assert "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        assert first.headers["idempotency-key"] == again.headers["idempotency-key"] == "k"
        assert len(site.runs) == 1

    @pytest.mark.parametrize("claim", CLAIMS)
    def test_other_parameters_under_the_key_are_a_conflict(self, serve, claim):
        site = serve(profile="acp", scope=None, claim=claim)
        site.post(key="k")
        refused = site.post(key="k", json={"item": "gin"})
        assert refused.status_code == 422
        assert refused.json()["type"] == "invalid_request"
        assert refused.json()["code"] == "idempotency_conflict"
        assert "retry-after" not in refused.headers
        assert len(site.runs) == 1

    def test_a_repeat_during_the_run_is_in_flight(self, serve):
        site = serve(profile="acp", scope=None)
        first = site.start("/slow", "k")
        site.gate.until_inside()
        refused = site.post("/slow", "k")
        site.gate.go_on.set()
        assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_in_flight")
        assert refused.headers["retry-after"] == "1"
        assert first.result().status_code == 201

    def test_each_endpoint_has_keys_of_its_own(self, serve):
        site = serve(profile="acp", scope=None)
        assert site.post("/orders", "k").status_code == 201
        assert site.post("/orders/7", "k").status_code == 201
        assert len(site.runs) == 2

    def test_a_store_that_is_down_is_a_service_that_is_unavailable(self, serve):
        site = serve(profile="acp", scope=None)
        site.store.refuse("claim", times=100)
        refused = site.post(key="k")
        assert (refused.status_code, refused.json()["type"]) == (503, "service_unavailable")

    def test_only_a_post_needs_a_key(self, serve):
        site = serve(profile="acp", scope=None)
        assert site.ask("PUT").status_code == 201
        assert site.ask("GET").status_code == 201


class TestUniversalCommerce:
    """UCP: sessions are made and completed by POST and updated by PUT."""

    @pytest.mark.parametrize("method", ["POST", "PUT"])
    @pytest.mark.parametrize("claim", CLAIMS)
    def test_a_repeat_gets_the_same_status_and_body(self, serve, claim, method):
        site = serve(profile="ucp", scope=None, claim=claim)
        first, again = (site.ask(method, key="k") for _ in range(2))
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert len(site.runs) == 1

    @pytest.mark.parametrize("method", ["POST", "PUT"])
    def test_another_body_under_the_key_is_a_conflict(self, serve, method):
        site = serve(profile="ucp", scope=None)
        site.ask(method, key="k")
        refused = site.ask(method, key="k", json={"item": "gin"})
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:oncekey:key-reused"
        assert len(site.runs) == 1

    def test_a_key_on_what_only_reads_is_taken_and_ignored(self, serve):
        site = serve(profile="ucp", scope=None)
        assert [site.ask("GET", key="k").status_code for _ in range(2)] == [201, 201]
        assert len(site.runs) == 2

    def test_the_methods_can_be_chosen(self, serve):
        site = serve(profile="ucp", scope=None, methods=["POST"])
        assert [site.ask("PUT", key="k").status_code for _ in range(2)] == [201, 201]
        assert len(site.runs) == 2
