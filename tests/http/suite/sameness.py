"""The same request is what means the same; another one under a used key is refused."""

import pytest

from oncekey.http import IETF

PROBLEM = "application/problem+json"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def multipart(boundary, name="a.txt", content="hello"):
    body = (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: text/plain\r\n\r\n{content}\r\n--{boundary}--\r\n"
    )
    return {
        "content": body.encode(),
        "headers": {"content-type": f"multipart/form-data; boundary={boundary}"},
    }


SAME = {
    "order of members": ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', JSON),
    "a number by its value": ('{"amount": 100}', '{"amount": 100.0}', JSON),
    "an escape by its meaning": ('{"name": "\\u00e9"}', '{"name": "é"}', JSON),
    "another JSON type": ('{"a": 1}', '{ "a": 1 }', {"content-type": "application/hal+json"}),
    "order of fields": ("a=1&b=2", "b=2&a=1", FORM),
    "encoding of fields": ("a=x%20y", "a=x+y", FORM),
}
OTHER = {
    "another value": ('{"amount": 100}', '{"amount": 101}', JSON),
    "another long number": (
        '{"a": 0.10000000000000000001}',
        '{"a": 0.10000000000000000002}',
        JSON,
    ),
    "a number as text": ('{"a": 1}', '{"a": "1"}', JSON),
    "order of a list": ("[1, 2]", "[2, 1]", JSON),
    "other bytes": ("a", "b", {"content-type": "text/plain"}),
    "broken JSON": ('{"a": ', '{"b": ', JSON),
    "order of equal fields": ("a=1&a=2", "a=2&a=1", FORM),
    "another field": ("a=1", "a=2", FORM),
}


class TestSameness:
    @pytest.mark.row("P7")
    @pytest.mark.parametrize(("one", "two", "headers"), SAME.values(), ids=SAME)
    def test_what_means_the_same_is_the_same_request(self, site, one, two, headers):
        first = site.post(key="k", content=one.encode(), headers=headers)
        again = site.post(key="k", content=two.encode(), headers=headers)
        assert again.content == first.content
        assert len(site.runs) == 1

    @pytest.mark.parametrize(("one", "two", "headers"), OTHER.values(), ids=OTHER)
    def test_what_means_something_else_is_refused(self, site, one, two, headers):
        first = site.post(key="k", content=one.encode(), headers=headers)
        other = site.post(key="k", content=two.encode(), headers=headers)
        assert other.status_code == 422
        assert other.headers["content-type"] == PROBLEM
        assert other.json()["type"] == "urn:oncekey:key-reused"
        assert "retry-after" not in other.headers
        again = site.post(key="k", content=one.encode(), headers=headers)
        assert again.content == first.content  # the first answer stands
        assert len(site.runs) == 1

    def test_a_file_sent_again_is_the_same_under_another_boundary(self, site):
        first = site.post("/upload", "k", **multipart("----one"))
        again = site.post("/upload", "k", **multipart("----another"))
        assert again.content == first.content
        assert site.post("/upload", "k", **multipart("x", content="bye")).status_code == 422
        assert site.post("/upload", "k", **multipart("x", name="b.txt")).status_code == 422
        assert len(site.runs) == 1

    def test_another_query_is_another_request(self, site):
        site.post("/orders?coupon=a", "k")
        assert site.post("/orders?coupon=a", "k").status_code == 201
        assert site.post("/orders?coupon=b", "k").status_code == 422
        assert site.post("/orders", "k").status_code == 422

    def test_another_request_is_refused_while_the_first_runs(self, site):
        first = site.start("/slow", "k", json={"n": 1})
        site.gate.until_inside()
        assert site.post("/slow", "k", json={"n": 2}).status_code == 422
        assert site.post("/slow", "k", json={"n": 1}).status_code == 409
        site.gate.go_on.set()
        assert first.result().status_code == 201

    def test_broken_json_is_answered_by_the_application_and_kept(self, site):
        first = site.post("/mirror", "k", content=b'{"a": ', headers=JSON)
        again = site.post("/mirror", "k", content=b'{"a": ', headers=JSON)
        assert first.json()["body"] == '{"a": '
        assert again.content == first.content
        assert "idempotent-replayed" in again.headers

    def test_members_that_were_not_chosen_do_not_count(self, serve):
        site = serve(profile=IETF.replace(fingerprint=("/amount", "/to/name")), scope=None)
        site.post(key="k", json={"amount": 1, "to": {"name": "ann"}, "sent": 1})
        again = site.post(key="k", json={"amount": 1.0, "to": {"name": "ann"}, "sent": 2})
        assert again.status_code == 201
        assert site.post(key="k", json={"amount": 1, "to": {"name": "bob"}}).status_code == 422
        assert len(site.runs) == 1
