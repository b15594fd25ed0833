"""The profile `payments`: key and user are in the body, and duplicates wait for the first."""

import pytest

from oncekey.http import PAYMENTS

BODY = {"userId": "ann", "amount": 100, "currency": "USD", "idempotencyKey": "key-0001"}


def body(**changes):
    return {"json": {**BODY, **changes}}


class TestPayments:
    @pytest.fixture
    def site(self, serve):
        return serve(profile="payments")

    @pytest.mark.row("P2")
    def test_the_same_request_gets_the_same_response_to_the_byte(self, site):
        first, again = site.post(**body()), site.post(**body(amount=100.0))
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.content == first.content
        assert len(site.runs) == 1

    @pytest.mark.row("P3")
    @pytest.mark.parametrize("path", ["/orders", "/orders/7"])
    def test_a_different_request_is_a_conflict(self, site, path):
        site.post(**body())
        refused = site.post(path, **body(amount=101 if path == "/orders" else 100))
        assert refused.status_code == 409
        assert refused.json()["error"] == "conflict"
        assert refused.json().keys() == {"error", "message"}
        assert len(site.runs) == 1

    @pytest.mark.row("P4")
    def test_those_that_arrive_together_wait_for_the_first(self, site):
        answers = [site.start("/slow", **body()) for _ in range(8)]
        site.gate.until_inside()
        site.gate.go_on.set()
        assert {answer.result().status_code for answer in answers} == {201}
        assert len({answer.result().content for answer in answers}) == 1
        assert len(site.runs) == 1

    @pytest.mark.row("P4")
    def test_they_are_told_to_come_back_where_so_configured(self, serve):
        site = serve(profile="payments", wait=0)
        first = site.start("/slow", **body())
        site.gate.until_inside()
        told = site.post("/slow", **body())
        assert told.status_code == 202
        assert told.headers["retry-after"] == "1"
        assert told.json() == {"status": "in_progress", "retry_after": 1}
        site.gate.go_on.set()
        assert first.result().status_code == 201

    @pytest.mark.row("P6")
    def test_a_failure_is_kept_and_replayed(self, site):
        first, again = (site.post("/status/402", **body()) for _ in range(2))
        assert (first.status_code, again.status_code) == (402, 402)
        assert again.content == first.content
        assert len(site.runs) == 1

    @pytest.mark.row("P6")
    def test_a_failure_is_forgotten_where_so_configured(self, serve):
        site = serve(profile=PAYMENTS.replace(kept=("2xx",)))
        first, again = (site.post("/status/402", **body()) for _ in range(2))
        assert again.content != first.content
        assert len(site.runs) == 2

    @pytest.mark.row("P7")
    def test_requests_are_compared_by_what_they_mean(self, serve):
        meaning = ("/userId", "/amount", "/currency")
        site = serve(profile=PAYMENTS.replace(fingerprint=meaning))
        first = site.post(**body(trace="1"))
        assert site.post(**body(trace="2", amount=100.0)).content == first.content
        assert site.post(**body(currency="VND")).status_code == 409

    @pytest.mark.row("P10")
    def test_a_key_belongs_to_its_user(self, site):
        ann, bob = site.post(**body()), site.post(**body(userId="bob"))
        assert ann.content != bob.content
        assert site.post(**body()).content == ann.content
        assert site.post(**body(userId="bob")).content == bob.content
        assert len(site.runs) == len(site.records()) == 2

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"idempotencyKey": None}, "idempotencyKey"),
            ({"idempotencyKey": ""}, "idempotencyKey"),
            ({"idempotencyKey": "1234567"}, "idempotencyKey"),
            ({"idempotencyKey": "é"}, "idempotencyKey"),
            ({"idempotencyKey": 12345678}, "idempotencyKey"),
            ({"userId": ""}, "userId"),
            ({"userId": None}, "userId"),
            ({"userId": True}, "userId"),
        ],
    )
    def test_a_member_that_cannot_be_used_is_named(self, site, changes, field):
        refused = site.post(**body(**changes))
        assert refused.status_code == 400
        assert refused.json().keys() == {"error", "field", "message"}
        assert (refused.json()["error"], refused.json()["field"]) == ("validation", field)
        assert not site.runs
        assert not site.store.calls

    @pytest.mark.row("P1")
    def test_an_array_has_no_members_as_in_the_clients_language(self, site):
        refused = site.post(json=[])
        assert (refused.status_code, refused.json()["field"]) == (400, "userId")

    @pytest.mark.row("P1")
    def test_a_key_may_be_written_in_anything(self, site):
        keys = [
            "Zahlung für Ä",
            "Zahlung f%C3%BCr %C3%84",
            "支付" * 4,
            "x" * 300,
            "x" * 299 + "y",
            " " * 8,
        ]
        for key in keys:
            first, again = (site.post(**body(idempotencyKey=key)) for _ in range(2))
            assert (first.status_code, again.content) == (201, first.content)
        assert len(site.runs) == len(site.records()) == len(keys)

    @pytest.mark.parametrize("missing", ["idempotencyKey", "userId"])
    def test_a_member_that_is_missing_is_named(self, site, missing):
        refused = site.post(json={name: BODY[name] for name in BODY if name != missing})
        assert refused.status_code == 400
        assert refused.json()["field"] == missing
        assert not site.store.calls

    @pytest.mark.parametrize("content", [b"", b'"[]"', b"nonsense", b"1e999", b'{"a":' * 9000])
    def test_a_body_that_is_no_object_is_refused(self, site, content):
        refused = site.post(content=content, headers={"content-type": "application/json"})
        assert refused.status_code == 400
        assert refused.json()["field"] == "body"
        assert not site.store.calls

    def test_while_the_store_is_down(self, site):
        site.store.refuse("claim")
        refused = site.post(**body())
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert not site.runs
