"""Keys and bodies that cannot be used are refused before the store is touched."""

from hashlib import sha256

import pytest

PROBLEM = "application/problem+json"
BAD = {
    "empty": "",
    "spaces": "  ",
    "empty string": '""',
    "too long": "k" * 256,
    "not ASCII": "schl\xfcssel",
    "a control character": "a\tb",
    "not closed": '"k',
    "a bad escape": '"a\\b"',
    "more after the string": '"a"b',
    "two keys": "a,b",
    "two strings": '"a", "b"',
}


def untouched(site):
    """Nothing ran, and the store heard nothing."""
    return not site.runs and not site.store.calls


class TestBadKeys:
    @pytest.mark.row("W7")
    def test_it_is_refused_before_the_store_is_touched(self, site):
        for why, value in BAD.items():
            status, got = site.raw(f"POST /orders HTTP/1.1\nIdempotency-Key: {value}", b"{}")
            assert status == 400, why
            assert b"urn:oncekey:invalid-key" in got
            assert PROBLEM.encode() in got
        assert untouched(site)

    def test_two_headers_are_refused(self, site):
        status, got = site.raw(
            "POST /orders HTTP/1.1\nIdempotency-Key: a\nIdempotency-Key: a", b"{}"
        )
        assert status == 400
        assert b"urn:oncekey:invalid-key" in got
        assert untouched(site)

    def test_any_other_is_taken(self, site):
        for key in ("k" * 255, "a b", "~!@#$%^&*()", '"a,b"', "0123", '"k";x=1'):
            assert site.post(key=key).status_code == 201, key
            assert site.post(key=key).headers["idempotent-replayed"] == "true"

    def test_a_leading_zero_counts(self, site):
        site.post(key="0123")
        assert "idempotent-replayed" not in site.post(key="123").headers

    def test_a_missing_key_is_refused_where_one_is_required(self, serve):
        site = serve(scope=None, required=True)
        refused = site.post()
        assert refused.status_code == 400
        assert refused.headers["content-type"] == PROBLEM
        assert refused.json()["type"] == "urn:oncekey:missing-key"
        assert "Idempotency-Key" in refused.json()["detail"]
        assert untouched(site)
        assert site.ask("GET").status_code == 201  # not covered

    def test_a_refusal_links_to_the_documentation(self, serve):
        site = serve(scope=None, required=True, docs_url="https://shop.example/keys")
        link = '<https://shop.example/keys>; rel="describedby"'
        assert site.post().headers["link"] == link
        assert site.post(key="").headers["link"] == link

    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_a_body_over_the_limit_is_refused_only_with_a_key(self, serve, claim):
        site = serve(scope=None, max_body=1000, claim=claim)
        refused = site.post("/mirror", "k", content=b"x" * 1001)
        assert refused.status_code == 413
        assert refused.json()["type"] == "urn:oncekey:too-large"
        assert untouched(site)
        assert site.post("/mirror", content=b"x" * 1001).status_code == 200
        assert site.post("/mirror", "k", content=b"x" * 1000).status_code == 200

    def test_a_large_body_reaches_the_application_whole(self, site):
        body = b"0123456789abcdef" * (2 << 16)  # as much as every framework takes
        sent = {"content": body, "headers": {"content-type": "text/plain"}}
        first, again = (site.post("/upload", "k", **sent) for _ in range(2))
        assert first.json() == {"run": 1, "sha256": sha256(body).hexdigest()}
        assert again.content == first.content
