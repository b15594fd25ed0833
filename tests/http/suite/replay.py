"""A request that arrives again gets the first answer."""

import pytest

from oncekey.http import IETF

OF_THE_SERVER = {"date", "server", "connection"}


def plain(response):
    """The headers that are the application's own, in their order."""
    return [
        (name, value)
        for name, value in response.headers.multi_items()
        if name not in OF_THE_SERVER | {"idempotent-replayed"}
    ]


class TestReplay:
    @pytest.mark.row("P2")
    def test_a_repeat_gets_the_first_answer_to_the_byte(self, site):
        first = site.post(key="k")
        again = site.post(key="k")
        assert len(site.runs) == 1
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.content == first.content
        assert plain(again) == plain(first)
        assert again.headers["location"] == "/orders/1"

    def test_only_a_replay_says_that_it_is_one(self, site):
        assert "idempotent-replayed" not in site.post(key="k").headers
        assert site.post(key="k").headers.get_list("idempotent-replayed") == ["true"]

    def test_what_belongs_to_one_answer_alone_is_not_replayed(self, site):
        first, again = site.post("/cookies", "k"), site.post("/cookies", "k")
        assert first.headers.get_list("set-cookie") == ["session=1", "theme=dark"]
        assert first.headers["access-control-allow-origin"] == "https://shop.example"
        gone = ("set-cookie", "access-control-allow-origin", "www-authenticate")
        assert plain(again) == [pair for pair in plain(first) if pair[0] not in gone]
        assert again.content == first.content == "grüße".encode()

    def test_a_header_that_came_twice_comes_twice_again(self, site):
        site.post("/cookies", "k")
        again = site.post("/cookies", "k")
        links = again.headers.get_list("link", split_commas=True)
        assert links == ["</a>; rel=next", "</b>; rel=prev"]

    def test_a_replay_has_the_date_of_today(self, site):
        site.post("/cookies", "k")
        assert len(site.post("/cookies", "k").headers.get_list("date")) == 1

    def test_the_key_is_sent_back_as_it_came(self, site):
        for key in ("k", '"k"', '"with \\" and \\\\ and ,"'):
            assert site.post(key=key).headers.get_list("idempotency-key") == [key]
            assert site.post(key=key).headers.get_list("idempotency-key") == [key]

    def test_the_key_is_not_sent_back_where_the_profile_does_not_say_so(self, serve):
        site = serve(profile=IETF.replace(echo=False), scope=None)
        assert "idempotency-key" not in site.post(key="k").headers
        assert "idempotency-key" not in site.post(key="k").headers

    @pytest.mark.parametrize(("path", "status"), [("/empty", 204), ("/redirect", 303)])
    def test_an_answer_without_a_body_is_replayed(self, site, path, status):
        first, again = site.post(path, "k"), site.post(path, "k")
        assert (first.status_code, again.status_code) == (status, status)
        assert first.content == again.content == b""
        assert plain(again) == plain(first)
        assert len(site.runs) == 1

    def test_a_quoted_key_is_the_same_as_the_bare_one(self, site):
        assert site.post(key="k").content == site.post(key='"k"').content
        assert len(site.runs) == 1

    def test_other_keys_are_other_requests(self, site):
        assert site.post(key="a").content != site.post(key="b").content
        assert len(site.runs) == 2

    def test_after_its_lifetime_a_request_runs_again(self, site):
        first = site.post(key="k")
        site.clock.advance("23h")
        assert site.post(key="k").content == first.content
        site.clock.advance("2h")
        assert site.post(key="k").content != first.content

    @pytest.mark.parametrize("method", ["POST", "PATCH"])
    def test_post_and_patch_are_covered(self, site, method):
        assert site.ask(method, key="k").content == site.ask(method, key="k").content

    def test_other_methods_are_covered_where_so_configured(self, serve):
        site = serve(scope=None, methods=["PUT"])
        site.ask("PUT", key="k")
        assert "idempotent-replayed" in site.ask("PUT", key="k").headers
        site.post(key="k")
        assert "idempotent-replayed" not in site.post(key="k").headers

    def test_one_key_on_two_routes_is_two_requests(self, site):
        answers = [
            site.post("/orders", "k"),
            site.post("/orders/7", "k"),
            site.ask("PATCH", "/orders/7", "k"),
        ]
        assert len({answer.content for answer in answers}) == 3
