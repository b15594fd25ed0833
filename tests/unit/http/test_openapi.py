"""What a middleware does is said in a document of OpenAPI, and nothing else is."""

import json
import re
from copy import deepcopy

import pytest

from oncekey import ConfigurationError, Once
from oncekey.http import IETF, PAYMENTS, STRIPE, WEBHOOK, presets
from oncekey.http.keys import of_header
from oncekey.http.openapi import describe
from oncekey.http.rules import Rules

ORDER = {"responses": {"201": {"description": "Ordered."}}}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders": {"post": ORDER, "get": ORDER},
        "/orders/{id}/refund": {"post": ORDER},
        "/health": {"post": ORDER},
    },
}


def rules(**settings):
    return Rules(Once("memory://"), **{"scope": None, **settings})


def described(**settings):
    """The operation of /orders, and the components."""
    document = describe(DOCUMENT, rules(**settings))
    return document["paths"]["/orders"]["post"], document["components"]


def schema_of(operation, components, status, media_type="application/problem+json"):
    schema = operation["responses"][status]["content"][media_type]["schema"]
    if "$ref" not in schema:
        return schema
    return components["schemas"][schema["$ref"].rpartition("/")[2]]


def test_what_is_covered_is_described_and_nothing_else():
    document = describe(DOCUMENT, rules(routes=["/orders", "/orders/{order}/*"]))
    said = {
        f"{method} {path}": "x-idempotency" in operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    assert said == {
        "post /orders": True,
        "get /orders": False,
        "post /orders/{id}/refund": True,
        "post /health": False,
    }
    assert document["paths"]["/health"] == DOCUMENT["paths"]["/health"]


def test_the_given_document_stays_as_it_is():
    before = deepcopy(DOCUMENT)
    describe(DOCUMENT, rules())
    assert before == DOCUMENT


def test_describing_twice_is_describing_once():
    once = describe(DOCUMENT, rules())
    assert describe(once, rules()) == once


def test_the_key_is_a_parameter_with_the_lifetime():
    operation, components = described(required=True, ttl="7d")
    assert operation["parameters"] == [{"$ref": "#/components/parameters/IdempotencyKey"}]
    parameter = components["parameters"]["IdempotencyKey"]
    assert (parameter["name"], parameter["in"]) == ("Idempotency-Key", "header")
    assert parameter["required"] is True
    assert "kept for 7 days" in parameter["description"]
    assert operation["x-idempotency"]["lifetime"] == 7 * 86400


@pytest.mark.parametrize(
    ("ttl", "says"), [("24h", "24 hours"), ("90min", "90 minutes"), ("45s", "45 seconds")]
)
def test_the_lifetime_is_said_in_words(ttl, says):
    assert (
        f"kept for {says}" in described(ttl=ttl)[1]["parameters"]["IdempotencyKey"]["description"]
    )


def test_a_key_that_is_not_required_is_optional():
    operation, components = described()
    assert components["parameters"]["IdempotencyKey"]["required"] is False
    missing = schema_of(operation, components, "400")["properties"]["type"]["enum"]
    assert missing == ["urn:oncekey:invalid-key"]


@pytest.mark.parametrize(
    "key", ["k", '"k"', '"a, b"', "a b", "8e03978e-40d5", "~", "x" * 255, r'"a\"b"', ""]
)
def test_the_pattern_takes_what_the_middleware_takes(key):
    taken = _taken(key)
    pattern = described()[1]["parameters"]["IdempotencyKey"]["schema"]["pattern"]
    assert (re.search(pattern, key) is not None) is taken


@pytest.mark.parametrize("key", ["a,b", '"open', "x" * 256, "é", "a\tb"])
def test_the_pattern_refuses_what_the_middleware_refuses(key):
    assert not _taken(key)
    pattern = described()[1]["parameters"]["IdempotencyKey"]["schema"]["pattern"]
    assert re.search(pattern, key) is None


def _taken(key):
    try:
        of_header("Idempotency-Key", [key.encode()])
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return False
    return True


def test_refusals_are_problems_with_their_types():
    operation, components = described(required=True)
    types = {
        status: schema_of(operation, components, status)["properties"]["type"]["enum"]
        for status in ("400", "409", "413", "422", "503")
    }
    assert types == {
        "400": ["urn:oncekey:missing-key", "urn:oncekey:invalid-key"],
        "409": [
            "urn:oncekey:in-progress",
            "urn:oncekey:response-not-replayable",
            "urn:oncekey:outcome-unknown",
        ],
        "413": ["urn:oncekey:too-large"],
        "422": ["urn:oncekey:key-reused"],
        "503": ["urn:oncekey:store-unavailable"],
    }


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"scope": lambda request: request.headers.get("x-tenant"), "required": True}, True),
        ({"claim": "handler", "required": True}, True),
        ({"scope": None, "required": True}, False),
        ({"scope": lambda request: request.headers.get("x-tenant"), "required": False}, False),
    ],
)
def test_a_request_that_nobody_owns_is_refused_only_where_a_key_is_required(settings, told):
    operation, components = described(**settings)
    assert ("403" in operation["responses"]) is told
    if told:
        schema = schema_of(operation, components, "403")
        assert schema["properties"]["type"]["enum"] == ["urn:oncekey:unprotected"]


def test_a_profile_that_takes_any_text_says_so():
    document = deepcopy(DOCUMENT)
    payments = Rules(Once("memory://"), profile="payments")
    operation = describe(document, payments)["paths"]["/orders"]["post"]
    assert "a text of 8 or more characters" in operation["description"]


def test_types_are_below_the_documentation_where_it_is_known():
    operation, components = described(docs_url="https://shop.example/keys")
    schema = schema_of(operation, components, "422")
    assert schema["properties"]["type"]["enum"] == ["https://shop.example/keys#key-reused"]


def test_when_to_come_again_is_said_where_there_is_a_when():
    operation, _ = described()
    later = {
        status
        for status, one in operation["responses"].items()
        if "Retry-After" in one.get("headers", {})
    }
    assert later == {"409", "503"}


def test_a_replay_is_marked_on_what_is_kept():
    document = deepcopy(DOCUMENT)
    responses = {code: {"description": code} for code in ("2XX", "303", "404", "410", "500")}
    document["paths"]["/orders"]["post"] = {"responses": responses}
    made = describe(document, rules())["paths"]["/orders"]["post"]["responses"]
    marked = {code for code in responses if "Idempotent-Replayed" in made[code].get("headers", {})}
    assert marked == {"2XX", "303", "410"}


def test_what_the_document_says_stays():
    document = deepcopy(DOCUMENT)
    document["paths"]["/orders"]["post"] = {
        "parameters": [{"name": "idempotency-key", "in": "header", "schema": {"type": "string"}}],
        "responses": {
            422: {
                "description": "Not valid.",
                "content": {
                    "application/json": {"schema": {"type": "string"}},
                    "application/problem+json": {"schema": {"type": "object"}},
                },
                "headers": {"X-Why": {"schema": {"type": "string"}}},
            },
            "409": {"$ref": "#/components/responses/SoldOut"},
        },
    }
    sold_out = {"description": "Sold out", "content": {"text/plain": {}}}
    document["components"] = {"responses": {"SoldOut": sold_out}}
    made = describe(document, rules())
    operation = made["paths"]["/orders"]["post"]
    assert [one["name"] for one in operation["parameters"]] == ["idempotency-key"]
    invalid = operation["responses"]["422"]
    assert invalid["description"] == "Not valid; Idempotency key was used for another request."
    assert invalid["content"]["application/json"] == {"schema": {"type": "string"}}
    assert invalid["content"]["application/problem+json"]["schema"]["anyOf"] == [
        {"type": "object"},
        {"$ref": "#/components/schemas/IdempotencyProblem422"},
    ]
    assert "X-Why" in invalid["headers"]
    conflict = operation["responses"]["409"]
    assert conflict["content"].keys() == {"text/plain", "application/problem+json"}
    assert conflict["description"].startswith("Sold out; Request is in progress")
    assert made["components"]["responses"]["SoldOut"] == sold_out


def test_two_middlewares_share_one_document():
    first = describe(DOCUMENT, rules(routes=["/orders"]))
    both = describe(first, rules(routes=["/health"], docs_url="https://shop.example/keys"))
    one, other = (
        both["paths"][path]["post"]["responses"]["409"]["content"]["application/problem+json"]
        for path in ("/orders", "/health")
    )
    assert one != other
    types = [
        both["components"]["schemas"][part["schema"]["$ref"].rpartition("/")[2]]
        for part in (one, other)
    ]
    assert types[0]["properties"]["type"]["enum"][0] == "urn:oncekey:in-progress"
    assert types[1]["properties"]["type"]["enum"][0] == "https://shop.example/keys#in-progress"


def test_a_profile_with_its_own_words_has_its_own_schemas():
    operation, components = described(profile=STRIPE)
    error = schema_of(operation, components, "409", "application/json")["anyOf"][0]
    assert error["properties"]["error"]["properties"]["code"]["enum"] == ["idempotency_key_in_use"]
    assert "422" not in operation["responses"]
    assert "500" in operation["responses"]


def test_a_key_in_the_body_is_described_in_words():
    document = deepcopy(DOCUMENT)
    document["paths"]["/orders"]["post"]["description"] = "Order something."
    operation = describe(document, rules(profile=PAYMENTS))["paths"]["/orders"]["post"]
    assert "parameters" not in operation
    assert operation["description"].startswith(
        "Order something.\n\nThe member `idempotencyKey` of the body is the idempotency key"
    )
    assert operation["responses"]["202"]["headers"].keys() == {"Retry-After"}


def test_a_webhook_says_what_a_duplicate_gets():
    operation, _ = described(profile=presets.github("secret"))
    assert operation["parameters"] == [{"$ref": "#/components/parameters/XGithubDelivery"}]
    assert "Idempotent-Replayed" in operation["responses"]["200"]["headers"]
    assert operation["responses"].keys() >= {"200", "400", "401", "409", "413", "429"}
    assert "503" not in operation["responses"]  # it runs while the store is down
    assert "422" not in operation["responses"]  # nothing is compared
    assert operation["x-idempotency"]["lifetime"] == 7 * 86400


def test_the_status_url_is_said_where_there_is_one():
    operation, components = described(status_path="/requests")
    assert "status_url" in schema_of(operation, components, "409")["properties"]
    operation, components = described()
    assert "status_url" not in schema_of(operation, components, "409")["properties"]


@pytest.mark.parametrize("profile", [IETF, STRIPE, WEBHOOK, PAYMENTS], ids=lambda one: one.name)
def test_the_document_is_json(profile):
    json.dumps(describe(DOCUMENT, rules(profile=profile)))


@pytest.mark.parametrize("document", [{}, {"swagger": "2.0"}, {"openapi": "2.0"}])
def test_other_documents_are_refused(document):
    with pytest.raises(ConfigurationError, match="OpenAPI 3"):
        describe(document, rules())


def test_other_middlewares_are_refused():
    with pytest.raises(ConfigurationError, match="describe takes the middleware, not str"):
        describe(DOCUMENT, "stripe")
