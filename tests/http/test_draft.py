"""What draft-ietf-httpapi-idempotency-key-header-07 asks for, one test for each line of our table.

`docs/http-draft.md` is that table. One framework is enough here: all run the same rules.
"""

import re
import uuid
from pathlib import Path

import httpx
import pytest

from oncekey import ConfigurationError
from oncekey.http import IETF, by_user
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.http.client import OnceTransport
from tests.http.shells import starlette

TABLE = Path(__file__).parents[2] / "docs" / "http-draft.md"
ROW = re.compile(r"^\| R(\d+) \|.*\| (`test_r(\d+)`|none) \|$", re.MULTILINE)
ANN, BOB = ({"authorization": f"Bearer {token}"} for token in ("ann-1", "bob-1"))
DOCS = "https://shop.example/keys"


@pytest.fixture(scope="module")
def shell():
    return starlette


@pytest.fixture
def site(serve):
    return serve(scope=None)


@pytest.fixture
def sender(site):
    """A client that makes keys by itself."""
    inner = httpx.HTTPTransport(verify=False)
    with httpx.Client(
        transport=OnceTransport(inner),
        base_url=site.client.base_url,
        headers=site.client.headers,
    ) as client:
        yield client


def replayed(response):
    return response.headers.get("idempotent-replayed") == "true"


def test_the_table_and_the_tests_name_each_other():
    rows = ROW.findall(TABLE.read_text("utf-8"))
    assert [int(number) for number, _, _ in rows] == list(range(1, 21))
    assert all(tested in {"", number} for number, _, tested in rows)
    named = {f"test_r{tested}" for _, _, tested in rows if tested}
    there = {re.match(r"test_r\d+", name)[0] for name in globals() if re.match(r"test_r\d", name)}
    assert there == named


def test_r1_a_structured_field_string_is_a_key_and_so_is_a_bare_one(site):
    first = site.post(key='"8e03978e-40d5-43dd-bc93-6894a57f9324"')
    assert first.status_code == 201
    assert replayed(site.post(key="8e03978e-40d5-43dd-bc93-6894a57f9324"))
    assert replayed(site.post(key='"8e03978e-40d5-43dd-bc93-6894a57f9324";v=1'))
    for bad in ('"not closed', '"a\\b"', '"a", "b"', '"a" b', '""'):
        assert site.post(key=bad).status_code == 400
    assert len(site.runs) == 1


def test_r2_a_client_never_sends_one_key_with_two_payloads(site, sender):
    for amount in (1, 2):
        assert sender.post("/orders", json={"amount": amount}).status_code == 201
    assert len({record.key for record in site.records()}) == 2


def test_r3_keys_differ_by_principal_method_and_path(serve):
    site = serve(scope=by_user)
    site.post("/orders", "k", headers=ANN)
    site.post("/orders", "k", headers=BOB)
    site.post("/orders/7", "k", headers=ANN)
    site.ask("PATCH", "/orders/7", "k", headers=ANN)
    assert len(site.runs) == len(site.records()) == 4
    with pytest.raises(ConfigurationError, match="needs scope="):
        IdempotencyMiddleware(site, site.once)


@pytest.mark.parametrize(
    "key", ["8e03978e-40d5-43e8-bc93-6894a57f9324", "order-42", "0", "~" * 255]
)
def test_r4_a_key_may_be_a_uuid_and_need_not(site, key):
    assert site.post(key=key).status_code == 201
    assert replayed(site.post(key=key))


def test_r5_a_key_expires(serve):
    site = serve(scope=None, ttl="1h")
    site.post(key="k")
    site.clock.advance("59min")
    assert replayed(site.post(key="k"))
    site.clock.advance("2min")
    assert not replayed(site.post(key="k"))
    assert len(site.runs) == 2


def test_r6_the_fingerprint_covers_the_request_or_what_was_chosen_of_it(site, serve):
    site.post(key="k", json={"amount": 1, "sent": 1})
    assert site.post(key="k", json={"amount": 1, "sent": 2}).status_code == 422
    chosen = serve(scope=None, profile=IETF.replace(fingerprint=("/amount",)))
    chosen.post(key="k", json={"amount": 1, "sent": 1})
    assert replayed(chosen.post(key="k", json={"amount": 1, "sent": 2}))
    assert chosen.post(key="k", json={"amount": 2, "sent": 2}).status_code == 422
    none = serve(scope=None, profile=IETF.replace(fingerprint=None))
    none.post(key="k", json={"amount": 1})
    assert replayed(none.post(key="k", json={"amount": 2}))


def test_r7_a_client_sends_a_key_of_its_own_with_each_request(site, sender, monkeypatch):
    monkeypatch.setattr("oncekey.http.client.pause", lambda seconds: None)
    site.store.refuse("claim")  # so that it has to ask twice
    for _ in range(2):
        assert sender.post("/orders", json={"item": "tea"}).status_code == 201
    one, two = (record.key for record in site.records())
    assert uuid.UUID(one) != uuid.UUID(two)
    assert site.store.calls["claim"] == 3


def test_r8_a_key_means_nothing_where_requests_are_not_covered(serve):
    site = serve(scope=None, routes=["/orders"])
    for key in ("k", "k", "not, a, key"):
        assert site.ask("GET", "/orders", key).status_code == 201
        assert site.post("/orders/7", key).status_code == 201
    assert len(site.runs) == 6
    assert not site.store.calls


def test_r10_the_key_is_found_first_then_the_fingerprint_and_then_the_application_runs(site):
    assert site.post("/orders", "a,b", content=b"1").status_code == 400
    assert not site.store.calls
    site.post("/orders", "k", content=b"1")
    assert site.store.calls["claim"] == 1
    assert site.post("/orders", "k", content=b"2").status_code == 422
    assert [run.body for run in site.runs] == [b"1"]


def test_r11_a_first_request_is_processed_as_usual(site):
    usual, first = site.post(), site.post(key="k")
    assert usual.status_code == first.status_code == 201
    assert usual.json()["order"] == 1
    assert first.json()["order"] == 2
    assert not replayed(first)


@pytest.mark.parametrize("status", [200, 201, 303, 402, 409, 410])
def test_r12_a_repeat_gets_the_result_success_or_error(site, status):
    first, again = (site.post(f"/status/{status}", "k") for _ in range(2))
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert (first.status_code, replayed(again)) == (status, True)


@pytest.mark.parametrize("status", [400, 401, 422, 429, 500, 503])
def test_r12_an_answer_that_can_be_asked_for_again_is_not_a_result(site, status):
    assert [site.post(f"/status/{status}", "k").json()["run"] for _ in range(2)] == [1, 2]


def test_r13_a_repeat_before_the_end_is_a_conflict(site):
    first = site.start("/slow", "k")
    site.gate.until_inside()
    refused = site.post("/slow", "k")
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:oncekey:in-progress"
    assert refused.json()["detail"]
    site.gate.go_on.set()
    assert first.result().status_code == 201


def test_r14_another_payload_under_the_same_key_is_refused(site):
    site.post(key="k", json={"amount": 1})
    refused = site.post(key="k", json={"amount": 2})
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:oncekey:key-reused"


def test_r15_a_required_key_that_is_missing_is_refused(serve):
    site = serve(scope=None, required=True)
    assert site.post().status_code == 400
    assert site.post().json()["type"] == "urn:oncekey:missing-key"
    assert not site.runs


def test_r16_a_request_that_is_not_corrected_is_refused_again(serve):
    site = serve(scope=None, required=True)
    site.post(key="k", json={"amount": 1})
    for _ in range(3):
        assert site.post(key="k", json={"amount": 2}).status_code == 422
        assert site.post(key="a,b").status_code == 400
        assert site.post().status_code == 400
    assert replayed(site.post(key="k", json={"amount": 1}))
    assert len(site.runs) == 1


def test_r18_a_key_is_checked_before_anything_is_looked_up(site):
    for bad in ("", "k" * 256, "a,b", '"'):
        assert site.post(key=bad).status_code == 400
    assert not site.store.calls


def test_r19_a_record_is_found_by_what_the_server_knows_of_the_client(serve):
    site = serve(scope=by_user)
    site.post("/whoami", "k", headers={**ANN, "x-user": "bob"})
    assert not replayed(site.post("/whoami", "k", headers=BOB))
    assert replayed(site.post("/whoami", "k", headers={**ANN, "x-user": "eve"}))


def test_r20_errors_are_problems_and_link_to_the_documentation(serve):
    site = serve(scope=None, required=True, docs_url=DOCS)
    first = site.start("/slow", "k")
    site.gate.until_inside()
    refusals = [site.post(), site.post("/slow", "k", json={}), site.post("/slow", "k")]
    assert [refused.status_code for refused in refusals] == [400, 422, 409]
    for refused in refusals:
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["content-language"] == "en"
        assert refused.headers["link"] == f'<{DOCS}>; rel="describedby"'
        assert refused.json()["status"] == refused.status_code
        assert refused.json().keys() >= {"type", "title", "status", "detail"}
        assert refused.json()["type"].startswith(f"{DOCS}#")
    site.gate.go_on.set()
    assert first.result().status_code == 201
