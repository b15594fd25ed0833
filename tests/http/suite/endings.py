"""How a request ends decides whether its answer is kept or its key is free again."""

import pytest

REFUSED = [400, 401, 403, 404, 405, 406, 408, 411, 412, 413, 415, 417, 421, 422, 423, 425]
REFUSED += [426, 428, 429, 431]


class TestEndings:
    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_after_a_time_out_the_key_is_held_where_so_configured(self, serve, claim):
        site = serve(scope=None, on_crash="hold", claim=claim)
        assert site.post("/timeout", "k").status_code == 500
        refused = site.post("/timeout", "k")
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:oncekey:outcome-unknown"
        assert "retry-after" not in refused.headers
        assert len(site.runs) == 1

    def test_the_attempts_of_one_key_are_limited_where_so_configured(self, serve):
        site = serve(scope=None, max_attempts=2)
        assert [site.post("/boom", "k").status_code for _ in range(3)] == [500, 500, 409]
        assert len(site.runs) == 2

    @pytest.mark.parametrize("profile", ["ietf", "stripe"])
    def test_a_refusal_that_may_be_another_answer_next_time_frees_the_key(self, serve, profile):
        site = serve(scope=None, profile=profile)
        for status in (307, 308, *REFUSED):
            path = f"/status/{status}"
            first, again = (site.post(path, str(status), json={}) for _ in range(2))
            assert (first.status_code, again.status_code) == (status, status)
            assert first.content != again.content

    def test_a_redirect_leads_to_the_same_request_elsewhere(self, serve):
        site = serve(scope=None, profile="stripe")  # whose keys are those of all routes
        assert site.post("/status/307", "k").status_code == 307
        assert site.post("/orders", "k").status_code == 201

    @pytest.mark.parametrize("status", [402, 409, 410])
    def test_a_refusal_that_says_when_to_ask_again_frees_the_key(self, site, status):
        path = f"/later/{status}"
        assert [site.post(path, "k").json()["run"] for _ in range(2)] == [1, 2]

    def test_an_acceptance_that_says_when_to_ask_again_is_kept(self, site):
        assert [site.post("/later/202", "k").json()["run"] for _ in range(2)] == [1, 1]

    def test_a_handler_can_have_its_answer_kept(self, site):
        first, again = (site.post("/keep", "k") for _ in range(2))
        assert (first.status_code, again.status_code) == (422, 422)
        assert first.content == again.content
        assert again.headers["idempotent-replayed"] == "true"
        assert len(site.runs) == 1

    def test_a_handler_notes_what_the_next_attempt_must_know(self, site):
        assert site.post("/note", "k").status_code == 500
        again = site.post("/note", "k")
        assert again.json() == {
            "number": 2,
            "before": {"charge": "ch_1"},
            "notes": {"charge": "ch_1"},
        }
        one, two = site.facts["downstream"]
        assert one == two
        assert site.post("/note", "k").content == again.content
        assert len(site.runs) == 2

    def test_another_request_may_not_use_a_key_that_has_notes(self, site):
        site.post("/note", "k", json={"amount": 1})
        assert site.post("/note", "k", json={"amount": 2}).status_code == 422
