"""A key belongs to whoever sent it: nobody gets the answer of somebody else."""

import pytest

from oncekey.http import STRIPE, Request, by_authorization, by_user

ANN, REFRESHED, BOB = (
    {"authorization": f"Bearer {token}"} for token in ("ann-1", "ann-2", "bob-1")
)


def by_tenant(request: Request) -> str | None:
    return request.header("x-tenant")


class TestScopes:
    @pytest.mark.parametrize("profile", ["ietf", STRIPE])
    @pytest.mark.parametrize(
        "settings", [{"scope": by_user}, {"scope": by_authorization}, {"claim": "handler"}]
    )
    def test_two_users_with_one_key_never_see_each_others_answer(self, serve, settings, profile):
        site = serve(profile=profile, **settings)
        answers = [site.post("/whoami", "k", headers=who) for who in (ANN, BOB, ANN, BOB)]
        assert [answer.json()["for"] for answer in answers] == ["ann", "bob", "ann", "bob"]
        assert [answer.content for answer in answers[2:]] == [one.content for one in answers[:2]]
        assert len(site.runs) == 2

    @pytest.mark.parametrize("settings", [{"scope": by_user}, {"claim": "handler"}])
    def test_a_refreshed_token_finds_the_record_of_its_user(self, serve, settings):
        site = serve(**settings)
        first = site.post("/whoami", "k", headers=ANN)
        assert site.post("/whoami", "k", headers=REFRESHED).content == first.content
        assert len(site.runs) == 1

    def test_by_authorization_a_refreshed_token_is_somebody_else(self, serve):
        site = serve(scope=by_authorization)
        site.post("/whoami", "k", headers=ANN)
        site.post("/whoami", "k", headers=REFRESHED)
        assert len(site.runs) == 2

    def test_neither_token_nor_user_of_another_is_in_the_scope_in_the_clear(self, serve):
        site = serve(scope=by_authorization)
        site.post("/whoami", "k", headers=ANN)
        assert "ann-1" not in (site.record().scope or "")

    def test_a_function_of_the_request_says_whose_it_is(self, serve):
        site = serve(scope=by_tenant)
        for tenant in ("a", "b", "a"):
            site.post(key="k", headers={"x-tenant": tenant})
        assert len(site.runs) == 2

    @pytest.mark.parametrize("scope", [by_user, by_authorization, by_tenant])
    def test_for_nobody_in_particular_nothing_is_kept(self, serve, scope):
        site = serve(scope=scope)
        assert site.post(key="k").content != site.post(key="k").content
        assert not site.store.calls

    def test_users_that_look_like_routes_do_not_meet(self, serve):
        site = serve(scope=by_tenant)
        site.post("/orders", "k", headers={"x-tenant": "a:POST:/orders"})
        site.post("/orders", "k", headers={"x-tenant": "a"})
        site.post("/orders", "k", headers={"x-tenant": "a%3APOST%3A/orders"})
        assert len(site.runs) == 3

    def test_a_stranger_is_turned_away_before_anything_is_claimed(self, serve):
        site = serve(claim="handler")
        site.post("/whoami", "k", headers=ANN)
        assert site.post("/whoami", "k").status_code == 401
