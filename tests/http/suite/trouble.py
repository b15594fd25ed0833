"""The store is down, late or forgetful."""

import logging

import pytest

BOTH = pytest.mark.parametrize("claim", ["first", "handler"])


class TestStoreDown:
    @pytest.fixture
    def hasty(self, monkeypatch):
        """Whoever settles has no patience with the store, and the keeper tries again at once."""
        monkeypatch.setattr("oncekey.engine.engine.SETTLE_PATIENCE", 0.0)
        monkeypatch.setattr("oncekey.engine.engine_async.SETTLE_PATIENCE", 0.0)
        monkeypatch.setattr("oncekey.engine.engine.RETRY", 0.01)
        monkeypatch.setattr("oncekey.engine.engine_async.RETRY", 0.01)

    def test_a_request_that_cannot_be_protected_is_refused(self, site):
        site.store.refuse("claim", 2)
        for _ in range(2):
            refused = site.post(key="k")
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["type"] == "urn:oncekey:store-unavailable"
        assert not site.runs
        assert site.post(key="k").status_code == 201

    def test_what_is_said_names_neither_store_nor_key(self, site):
        site.store.refuse("claim")
        refused = site.post(key="secret-key")
        assert "secret-key" not in refused.text
        assert "the store is down" not in refused.text

    @BOTH
    def test_it_runs_unprotected_where_so_configured(self, serve, caplog, claim):
        site = serve(scope=None, fail_mode="open", claim=claim)
        site.store.refuse("claim", 100)
        with caplog.at_level(logging.WARNING, "oncekey"):
            assert site.post(key="k").status_code == 201
        assert [record for record in caplog.records if record.levelno == logging.WARNING]
        assert site.told("unprotected")
        assert len(site.runs) == 1

    def test_a_request_without_a_key_does_not_need_the_store(self, site):
        site.store.refuse("claim")
        assert site.post().status_code == 201

    @pytest.mark.parametrize("verb", ["claim", "settle"])
    def test_a_lost_reply_is_asked_for_again(self, site, verb):
        site.store.lose_reply(verb)
        first = site.post(key="k")
        assert first.status_code == 201
        assert site.post(key="k").content == first.content
        assert len(site.runs) == 1

    def test_an_answer_that_could_not_be_recorded_is_not_sent_but_replayed_later(self, site, hasty):
        site.store.refuse("settle", 1)
        refused = site.post(key="k")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["type"] == "urn:oncekey:store-unavailable"
        site.until(lambda: site.record().status == "completed")
        again = site.post(key="k")
        assert again.status_code == 201
        assert again.headers["idempotent-replayed"] == "true"
        assert len(site.runs) == 1

    @BOTH
    def test_such_an_answer_is_sent_where_so_configured(self, serve, hasty, claim):
        site = serve(scope=None, fail_mode="open", claim=claim)
        site.store.refuse("settle", 1)
        assert site.post(key="k").status_code == 201
        assert site.told("not_recorded")

    def test_a_key_that_cannot_be_freed_now_is_freed_later(self, site, hasty):
        site.store.refuse("release")
        assert site.post("/status/422", "k").status_code == 422
        site.until(lambda: site.record().status == "released")
        assert site.post("/status/422", "k").json() == {"run": 2}


class TestHeld:
    def test_a_key_whose_outcome_nobody_knows_is_refused(self, site):
        site.post("/orders", "k")
        scope = site.record().scope
        site.once.options(scope=scope).forget("k")
        held = site.once.options(scope=scope, on_crash="hold", fingerprint=None)
        with pytest.raises(TimeoutError), held.attempt("k"):
            raise TimeoutError
        refused = site.post("/orders", "k")
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:oncekey:outcome-unknown"
        assert len(site.runs) == 1

    def test_a_record_of_another_kind_is_never_sent_as_a_response(self, site):
        site.post("/orders", "k")
        scope = site.record().scope
        site.once.options(scope=scope).forget("k")
        site.once.options(scope=scope, fingerprint=None).run("k", lambda: [200, "no", "reply"])
        refused = site.post("/orders", "k")
        assert refused.status_code == 409
        assert refused.headers["content-type"] == "application/problem+json"
        assert len(site.runs) == 1
