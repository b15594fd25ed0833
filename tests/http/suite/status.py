"""A URL at which the one who asked can learn how the request is doing, and nobody else."""

import pytest

from oncekey.http import by_user
from tests.http.suite.payments import body
from tests.http.suite.scopes import ANN, BOB, REFRESHED


class TestStatus:
    @pytest.fixture
    def site(self, serve):
        return serve(scope=by_user, status_path="/requests")

    @pytest.fixture
    def url(self, site):
        """Where Ann, whose request is held inside, was told to ask."""
        site.start("/slow", "k", headers=ANN)
        site.gate.until_inside()
        told = site.post("/slow", "k", headers=ANN)
        assert told.status_code == 409
        assert told.json()["status_url"] == told.headers["location"]
        return told.headers["location"]

    def test_it_tells_that_the_request_runs_and_then_how_it_ended(self, site, url):
        running = site.client.get(url, headers=ANN)
        assert running.status_code == 409
        assert running.headers["retry-after"] == "1"
        site.gate.go_on.set()
        site.until(lambda: site.record().status == "completed")
        ended = site.client.get(url, headers=REFRESHED)
        assert ended.status_code == 201
        assert ended.json() == {"order": 1, "for": "ann"}
        assert ended.headers["idempotent-replayed"] == "true"

    @pytest.mark.parametrize("who", [BOB, {}], ids=["bob", "nobody"])
    def test_nobody_else_may_ask(self, site, url, who):
        assert site.client.get(url, headers=who).status_code == 404
        site.gate.go_on.set()
        site.until(lambda: site.record().status == "completed")
        assert site.client.get(url, headers=who).status_code == 404

    def test_a_reference_cannot_be_made_up(self, site, url):
        for wrong in (url[:-4] + "AAAA", "/requests/x", "/requests/", f"/requests/{'A' * 4000}"):
            assert site.client.get(wrong, headers=ANN).status_code == 404

    def test_after_another_attempt_the_old_reference_is_worth_nothing(self, site, url):
        site.gate.go_on.set()
        site.until(lambda: site.record().status == "completed")
        site.clock.advance("25h")
        site.post("/slow", "k", headers=ANN)
        assert site.client.get(url, headers=ANN).status_code == 404

    def test_while_the_store_is_down(self, site, url):
        site.store.refuse("get")
        assert site.client.get(url, headers=ANN).status_code == 503

    def test_a_payment_in_progress(self, serve):
        site = serve(profile="payments", wait=0, status_path="/requests")
        first = site.start("/slow", **body())
        site.gate.until_inside()
        told = site.post("/slow", **body())
        assert told.status_code == 202
        assert told.json().keys() == {"status", "retry_after", "status_url"}
        assert site.client.get(told.headers["location"]).status_code == 202
        site.gate.go_on.set()
        assert first.result().status_code == 201
        assert site.client.get(told.headers["location"]).content == first.result().content
