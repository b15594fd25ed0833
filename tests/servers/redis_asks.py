"""Requests for one key, with whatever a test does not care about filled in."""

from oncekey.core.requests import Claim, Release, Settle

HOUR = 3_600_000_000


def ask(key="test-123", nonce="a", scope=None):
    return Claim(scope, key, nonce=nonce, fingerprint="1:" + "f" * 64, lease=HOUR, ttl=HOUR)


def settle(record, result=b"result"):
    return Settle(
        record.scope,
        record.key,
        token=record.token,
        nonce=record.nonce,
        status="completed",
        result=result,
        error=None,
        ttl=HOUR,
    )


def release(record, *, hold=False):
    return Release(
        record.scope,
        record.key,
        token=record.token,
        nonce=record.nonce,
        error=None,
        uncertain=hold,
        hold=hold,
        unused=False,
        counted=False,
        bare_ttl=HOUR,
        ttl=HOUR,
    )
