"""A key that does not protect: nobody is left to believe that it does."""

import pytest

from oncekey.http import by_user
from oncekey.testing import disabled
from tests.http.suite.scopes import ANN

NOTICE = "idempotent-unprotected"


def nobody(_request: object) -> None:
    """A scope function that knows nobody."""


class TestUnprotected:
    @pytest.mark.parametrize("scope", [by_user, nobody])
    def test_a_request_of_nobody_runs_and_is_told_of(self, serve, scope, caplog):
        site = serve(scope=scope)
        answers = [site.post("/orders", "k") for _ in range(2)]
        assert [one.headers[NOTICE] for one in answers] == ["no-owner"] * 2
        assert not any("idempotency-key" in one.headers for one in answers)
        assert len(site.runs) == 2
        events = site.told("unprotected")
        assert [(one.reason, one.key, one.surface) for one in events] == [
            ("no-owner", "k", "http")
        ] * 2
        assert "processing without protection" in caplog.text
        assert NOTICE not in site.post("/orders").headers
        assert len(site.told("unprotected")) == 2

    def test_where_a_key_is_required_a_request_of_nobody_is_refused(self, serve):
        site = serve(scope=by_user, required=True)
        refused = site.post("/orders", "k")
        assert refused.status_code == 403
        assert refused.json()["type"] == "urn:oncekey:unprotected"
        assert "whose request" in refused.json()["detail"]
        assert not site.runs
        answered = site.post("/orders", "k", headers=ANN)
        assert answered.status_code == 201
        assert NOTICE not in answered.headers

    def test_a_handler_that_forgot_to_claim_is_told_of(self, serve):
        site = serve(scope=None, claim="handler", claims=False)
        assert [site.post("/orders", "k").headers[NOTICE] for _ in range(2)] == ["not-claimed"] * 2
        assert [one.reason for one in site.told("unprotected")] == ["not-claimed"] * 2
        assert NOTICE not in site.post("/orders").headers
        assert NOTICE not in site.post("/status/404", "k").headers
        assert NOTICE not in site.ask("GET", "/orders", "k").headers
        assert len(site.told("unprotected")) == 2

    def test_a_stream_of_it_has_the_notice_too(self, serve):
        site = serve(scope=None, claim="handler", claims=False)
        assert site.post("/stream", "k").headers[NOTICE] == "not-claimed"

    def test_where_a_key_is_required_its_answer_is_not_sent(self, serve):
        site = serve(scope=None, claim="handler", required=True, claims=False)
        refused = site.post("/orders", "k")
        assert refused.status_code == 403
        assert refused.json()["type"] == "urn:oncekey:unprotected"
        assert site.post("/status/404", "k").status_code == 404
        assert [one.reason for one in site.told("unprotected")] == ["not-claimed"]

    def test_a_stream_of_it_is_not_sent_either(self, serve):
        site = serve(scope=None, claim="handler", required=True, claims=False)
        assert site.post("/stream", "k").status_code == 403

    def test_a_handler_that_claims_is_not_told_of(self, serve):
        site = serve(scope=None, claim="handler", required=True)
        answers = [site.post("/orders", "k") for _ in range(2)]
        assert [one.status_code for one in answers] == [201, 201]
        assert not any(NOTICE in one.headers for one in answers)
        assert not site.told("unprotected")

    def test_where_protection_is_switched_off_nothing_is_said(self, serve):
        site = serve(scope=nobody)
        with disabled():
            assert NOTICE not in site.post("/orders", "k").headers
        assert not site.told("unprotected")
