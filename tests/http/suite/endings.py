"""How a request ends decides whether its answer is kept or its key is free again."""

import pytest

NEVER_KEPT = [400, 401, 403, 404, 405, 406, 408, 411, 412, 413, 415, 417, 421, 422, 423, 425]
NEVER_KEPT += [426, 428, 429, 431]
KEPT = [200, 202, 301, 402, 409, 410, 451]
FAILED = [500, 502, 503, 504]


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
