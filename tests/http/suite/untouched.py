"""Requests that are not covered pass as if there were no middleware."""

import json

import pytest

from oncekey.http import Request


def said_of_encoding(response):
    return response.json()["headers"].get("accept-encoding")


class TestUntouched:
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    def test_other_methods(self, site, method):
        assert site.ask(method, key="k").content != site.ask(method, key="k").content
        assert not site.store.calls

    def test_requests_without_a_key(self, site):
        assert site.post().content != site.post().content
        assert not site.store.calls

    def test_a_bad_key_where_keys_mean_nothing(self, site):
        assert site.ask("GET", key="a,b").status_code == 201

    def test_other_routes(self, serve):
        site = serve(scope=None, routes=["/orders", "/status/{code}"])
        for path in ("/orders/7", "/empty", "/orders/"):
            site.post(path, "k")
            assert "idempotent-replayed" not in site.post(path, "k").headers
        assert not site.store.calls
        for path in ("/orders", "/status/200"):
            site.post(path, "k")
            assert "idempotent-replayed" in site.post(path, "k").headers
        assert {record.label for record in site.records()} == {
            "POST /orders",
            "POST /status/{code}",
        }

    def test_a_label_is_the_method_and_the_route(self, site):
        for path in ("/orders", "/status/200", "/status/201"):
            site.post(path, f"k{path[-1]}")
        labels = {record.label for record in site.records()}
        assert all(label.startswith("POST ") for label in labels)
        assert len(labels) <= 2
        assert "POST" not in labels
        assert not {label for label in labels if "200" in label or "201" in label}

    def test_what_a_function_says(self, serve):
        def marked(request: Request) -> bool:
            return request.header("x-test") == "1" and request.path == "/orders"

        site = serve(scope=None, when=marked)
        site.post(key="k")
        assert "idempotent-replayed" not in site.post(key="k").headers
        assert not site.store.calls
        site.post(key="k", headers={"x-test": "1"})
        again = site.post(key="k", headers={"x-test": "1"})
        assert again.headers["idempotent-replayed"] == "true"

    def test_their_streams_are_not_held_back(self, site):
        with site.client.stream("POST", "/endless", content=b"{}") as first:
            parts = first.iter_raw()
            assert next(parts) == b"data: 1\n\n"
            site.gate.until_inside()
            site.gate.go_on.set()
            assert b"".join(parts) == b"data: 1\n\n"
        assert not site.store.calls

    def test_their_headers_are_their_own(self, site):
        asked = {"accept-encoding": "gzip, br"}
        assert said_of_encoding(site.post("/mirror", headers=asked)) == "gzip, br"
        # A covered one is kept as it is, so that a client of another kind can read it too.
        assert said_of_encoding(site.post("/mirror", "k", headers=asked)) == "identity"

    def test_an_exception_reaches_the_server(self, site):
        assert site.post("/boom").status_code == 500
        assert not site.store.calls

    def test_the_switch_turns_protection_off(self, site):
        site.once.active = False
        assert site.post(key="k").content != site.post(key="k").content
        assert json.loads(site.post(key="k").content)["order"] == 3
        assert not site.store.calls
