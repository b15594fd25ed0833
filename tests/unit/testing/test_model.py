"""The model that stores are held against, where a store leaves things to its server."""

from oncekey.core.requests import Claim, Release, Settle
from oncekey.stores import MemoryStore
from oncekey.testing.clock import FakeClock
from oncekey.testing.model import StoreModel, Time


class LeavesItToTheServer(MemoryStore):
    """What expired goes when the server comes to it, and is there until then."""

    def purge(self, _grace, _limit, /):
        return 0


def test_what_a_server_has_not_removed_yet_counts_though_somebody_purged():
    clock = FakeClock()
    store = LeavesItToTheServer(clock=clock)
    model = StoreModel(
        store, Time(clock, lambda wait: clock.advance(wait / 1e6), 100, 100), purges=False
    )

    def claim(nonce):
        model._send(Claim(None, "k", nonce=nonce, fingerprint=None, lease=100, ttl=100))
        return {"token": store.get(None, "k").token, "nonce": nonce}

    ended = {"error": None, "uncertain": False, "hold": False, "unused": False}
    model._send(Release(None, "k", **claim("a"), **ended, counted=False, bare_ttl=100, ttl=100))
    proof = claim("b")  # in the same microsecond: its token is ahead of the clock
    model._send(Settle(None, "k", **proof, status="completed", result=b"", error=None, ttl=1))
    clock.advance(1e-6)
    model.purge(grace=0, limit=100)
    assert claim("c")["token"] == clock() + 1
