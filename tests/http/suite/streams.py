"""Responses that are too long to wait for are recorded first, and then pass through."""

import select
from concurrent.futures import Future

import pytest

from tests.http.suite.service import LARGE
from tests.patience import PATIENCE

BOTH = pytest.mark.parametrize("claim", ["first", "handler"])
ENDLESS = pytest.mark.parametrize("path", ["/endless", "/ndjson", "/large-stream"])


class Watch:
    """Looks at the client's end of the connection while the request is being settled."""

    def __init__(self, site):
        self._site = site
        self._connected = Future()
        site.store.instead("settle", self._settle)

    def connect(self, path):
        head = f"POST {path} HTTP/1.1\nIdempotency-Key: k"
        self._connected.set_result(self._site.connect(head, b"{}"))
        return self._connected.result()

    def _settle(self, do):
        self.silent_before = self._nothing_comes()
        done = do()
        self.silent_after = self._nothing_comes()  # the store has not answered yet
        return done

    def _nothing_comes(self):
        """Whether no byte has come a while after the server could have sent one."""
        return not select.select([self._connected.result(PATIENCE)], [], [], 0.05)[0]


def refused(site, path):
    """A repeat is told that it is done, and that is all."""
    again = site.post(path, "k", content=b"{}")
    assert again.status_code == 409
    assert again.json()["type"] == "urn:oncekey:response-not-replayable"
    assert again.json()["instance"].startswith("urn:oncekey:sha256:")
    assert "retry-after" not in again.headers
    return len(site.runs) == 1


class TestStreams:
    def test_one_that_uses_its_buffer_again_is_sent_and_kept_as_it_was(self, site):
        first, again = site.post("/buffer", "k"), site.post("/buffer", "k")
        assert first.content == again.content == b"one,two,six."
        assert len(site.runs) == 1

    def test_one_that_ends_soon_is_kept_and_replayed(self, site):
        first, again = site.post("/stream", "k"), site.post("/stream", "k")
        assert first.content == again.content == b"one,two,three 1"
        assert again.headers["idempotent-replayed"] == "true"

    def test_a_response_is_not_sent_before_it_is_recorded(self, site):
        watch = Watch(site)
        with watch.connect("/orders") as connection:
            assert b" 201 " in connection.recv(65536)
        assert watch.silent_before
        assert watch.silent_after

    @BOTH
    @ENDLESS
    def test_one_that_does_not_end_is_recorded_before_its_first_byte(self, serve, path, claim):
        site = serve(scope=None, max_result=LARGE // 2, claim=claim)
        watch = Watch(site)
        with watch.connect(path) as connection:
            assert connection.recv(9).startswith(b"HTTP/1.")
            assert site.record().status == "completed"  # and the handler still runs
            assert watch.silent_before
            assert refused(site, path)
            site.gate.until_inside()
        site.gate.go_on.set()
        assert refused(site, path)

    @ENDLESS
    def test_all_of_it_arrives(self, serve, path):
        site = serve(scope=None, max_result=LARGE // 2)
        site.gate.go_on.set()
        whole = {
            "/endless": b"data: 1\n\n" * 2,
            "/ndjson": b'{"n": 1}\n' * 2,
            "/large-stream": b"x" * LARGE + b"end",
        }
        assert site.post(path, "k").content == whole[path]

    @BOTH
    def test_a_response_that_is_too_large_is_sent_but_not_kept(self, serve, claim):
        site = serve(scope=None, max_result=LARGE // 2, claim=claim)
        first = site.post("/large", "k", content=b"{}")
        assert first.content == b"x" * LARGE
        assert refused(site, "/large")
        assert site.record().result is None

    def test_one_that_takes_its_time_is_not_held_back_for_ever(self, shell, serve, monkeypatch):
        if hasattr(shell, "HELD_FOR"):  # a second is long for a test
            monkeypatch.setattr(shell.HELD_FOR, 0.1)
        site = serve(scope=None)
        with site.client.stream(
            "POST", "/trickle", headers={"idempotency-key": "k"}, content=b"{}"
        ) as first:
            parts = first.iter_raw()
            assert next(parts).startswith(b".")
            assert site.record().status == "completed"
            assert refused(site, "/trickle")
            site.gate.go_on.set()
            assert b"".join(parts).endswith(b"end")

    def test_one_that_fails_half_way_frees_the_key(self, site):
        for _ in range(2):
            assert site.post("/half", "k").status_code == 500
        assert site.record().status == "released"
        assert len(site.runs) == 2

    def test_one_that_fails_when_it_was_let_through_stays_done(self, site):
        site.raw("POST /broken HTTP/1.1\nIdempotency-Key: k", b"{}")
        assert site.record().status == "completed"
        assert refused(site, "/broken")
