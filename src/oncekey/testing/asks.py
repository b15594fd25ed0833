"""Random requests for the model test, made from any `Random`.

Leases and lives are small numbers here, because how long they are is the choice of the store's
own tests. Proofs of ownership are added by the model, which knows who was granted what.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final, Literal

from oncekey.core.record import Status
from oncekey.core.requests import (
    Claim,
    Forget,
    Note,
    OnExpired,
    Release,
    Renew,
    Request,
    Resolve,
    Scan,
    Settle,
)

Spot = tuple[str | None, str]
Who = Literal["owner", "old", "old nonce", "old token"]

SPOTS: Final[tuple[Spot, ...]] = ((None, "k"), ("s", "k"), ("s", "l"), ("t", "k"))
_USUAL_SPOTS: Final = (*SPOTS, *SPOTS[:1] * 4)  # most about one key: it gets further
_BLOBS: Final = (None, b"", b"\xc0", b"blob")
_FINGERPRINTS: Final = ("1:x", "1:x", "1:x", "1:x", "1:y", "2:x", None)
_ON_EXPIRED: Final[tuple[OnExpired, ...]] = ("take", "take", "hold")
_ENDS: Final[tuple[Literal["completed", "failed"], ...]] = ("completed", "failed")
_DECISIONS: Final[tuple[Literal["completed", "failed", "released"], ...]] = (*_ENDS, "released")
_STATUSES: Final[tuple[Status | None, ...]] = (None, None, "running", *_DECISIONS, "held")
_WHO: Final[tuple[Who, ...]] = ("old", "old nonce", "old token")
_UNPROVED: Final[dict[str, Any]] = {"token": 0, "nonce": ""}


def who(random: Random) -> Who:
    """Whose token and nonce a request shows; most often the right ones."""
    return random.choice(_WHO) if random.randint(0, 3) == 0 else "owner"


def spot(random: Random) -> Spot:
    """Which key is meant."""
    return random.choice(_USUAL_SPOTS)


def request(random: Random) -> Request:
    """Any request about one of the keys."""
    make = random.choice(_MAKERS)
    return make(random, spot(random))


def scan(random: Random) -> Scan:
    """Any question for a list, on small pages."""
    return Scan(
        scope=random.choice([None, "s", "nowhere"]),
        any_scope=random.choice([True, False]),
        status=random.choice(_STATUSES),
        limit=random.randint(1, 4),
    )


def _claim(random: Random, spot: Spot) -> Request:
    return Claim(
        *spot,
        nonce=random.choice("abcdefgh"),
        fingerprint=random.choice(_FINGERPRINTS),
        on_expired=random.choice(_ON_EXPIRED),
        max_attempts=random.choice([None, None, 1, 2, 3]),
        label=random.choice(["", "label"]),
        reference=random.choice(["", "reference"]),
        lease=random.randint(1, 2),
        ttl=random.randint(0, 2),
    )


def _renew(random: Random, spot: Spot) -> Request:
    return Renew(*spot, **_UNPROVED, lease=random.randint(1, 2), ttl=random.randint(0, 2))


def _note(random: Random, spot: Spot) -> Request:
    noted = random.choice([b"", b"n", b"noted"])
    return Note(*spot, **_UNPROVED, noted=noted, revision=random.randint(-1, 2))


def _settle(random: Random, spot: Spot) -> Request:
    return Settle(
        *spot,
        **_UNPROVED,
        status=random.choice(_ENDS),
        result=random.choice(_BLOBS),
        error=random.choice(_BLOBS),
        ttl=random.randint(0, 2),
    )


def _release(random: Random, spot: Spot) -> Request:
    return Release(
        *spot,
        **_UNPROVED,
        error=random.choice(_BLOBS),
        uncertain=random.choice([False, True]),
        hold=random.choice([False, False, True]),
        unused=random.choice([False, False, True]),
        lease=random.randint(1, 2),
        ttl=random.randint(0, 2),
    )


def _resolve(random: Random, spot: Spot) -> Request:
    return Resolve(
        *spot,
        token=0,
        status=random.choice(_DECISIONS),
        result=random.choice(_BLOBS),
        error=random.choice(_BLOBS),
        ttl=random.randint(0, 2),
    )


def _forget(random: Random, spot: Spot) -> Request:
    return Forget(*spot, token=0, force=random.choice([False, True]))


# What is frequent here is what leads to more.
_MAKERS: Final = (
    *[_claim] * 5,
    *[_renew, _note, _release] * 2,
    *[_settle, _resolve, _forget],
)
