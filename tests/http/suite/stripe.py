"""The profile `stripe`: what the clients of Stripe expect."""

import pytest


class TestStripe:
    @pytest.fixture(params=["first", "handler"])
    def site(self, serve, request):
        return serve(profile="stripe", scope=None, claim=request.param)

    def test_a_repeat_gets_the_first_answer(self, site):
        first, again = site.post(key="k"), site.post(key="k")
        assert again.content == first.content
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["idempotency-key"] == "k"

    def test_during_the_run(self, site):
        first = site.start("/slow", "k")
        site.gate.until_inside()
        refused = site.post("/slow", "k")
        assert refused.status_code == 409
        assert refused.headers["stripe-should-retry"] == "true"
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "idempotency_key_in_use"
        site.gate.go_on.set()
        assert first.result().status_code == 201

    @pytest.mark.parametrize("path", ["/orders", "/orders/7", "/orders?coupon=a"])
    def test_another_request_under_the_same_key(self, site, path):
        site.post("/orders", "k", json={"amount": 1})
        refused = site.post(path, "k", json={"amount": 2 if path == "/orders" else 1})
        assert refused.status_code == 400
        assert refused.headers["stripe-should-retry"] == "false"
        assert refused.json()["error"]["type"] == "idempotency_error"
        assert len(site.runs) == 1

    def test_a_bad_key(self, site):
        refused = site.post(key="a,b")
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == "invalid_request_error"

    def test_what_is_kept(self, site):
        for status in (200, 303, 402, 500, 502):
            first, again = (site.post(f"/status/{status}", f"k{status}") for _ in range(2))
            assert (first.status_code, again.status_code) == (status, status)
            assert first.content == again.content

    def test_what_is_not(self, site):
        for status in (400, 401, 404, 429):
            first, again = (site.post(f"/status/{status}", f"k{status}") for _ in range(2))
            assert (first.status_code, again.status_code) == (status, status)
            assert first.content != again.content

    def test_an_exception_is_kept_as_a_failure(self, site):
        first, again = site.post("/boom", "k"), site.post("/boom", "k")
        assert (first.status_code, again.status_code) == (500, 500)
        assert first.json()["error"]["type"] == "api_error"
        assert again.content == first.content
        assert again.headers["idempotent-replayed"] == "true"
        assert len(site.runs) == 1

    def test_while_the_store_is_down(self, site):
        site.store.refuse("claim")
        refused = site.post(key="k")
        assert refused.status_code == 503
        assert refused.headers["stripe-should-retry"] == "true"
        assert refused.headers["retry-after"] == "1"
        assert not site.runs
