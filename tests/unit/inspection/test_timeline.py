"""The life of a record, moment by moment, as both surfaces tell it."""

from typing import Any

from oncekey.core.record import Record
from oncekey.inspection.timeline import timeline

SECOND = 1_000_000
BEGIN = 1_800_000_000 * SECOND


def kinds(apart: int = 0, **facts: Any) -> list[str]:
    given = {
        "scope": None,
        "key": "k-1",
        "status": "running",
        "fingerprint": None,
        "token": 7,
        "nonce": "n",
        "attempt": 1,
        "lease_end": BEGIN + 300 * SECOND,
        "created": BEGIN,
        "started": BEGIN,
        "updated": BEGIN,
        "expires": 0,
    }
    return [moment.kind for moment in timeline(Record(**(given | facts)), apart=apart)]


def test_a_first_attempt_is_claimed_and_has_a_lease():
    assert kinds() == ["claimed", "lease"]
    assert kinds(expires=BEGIN + SECOND) == ["claimed", "lease", "expires"]


def test_a_later_attempt_starts_and_has_notes():
    facts: dict[str, Any] = {"attempt": 2, "started": BEGIN + 1, "updated": BEGIN + 2}
    assert kinds(noted=b"\x90", **facts) == ["claimed", "started", "noted", "renewed", "lease"]


def test_moments_that_are_not_apart_are_told_once():
    facts: dict[str, Any] = {"started": BEGIN + 1, "updated": BEGIN + 2}
    assert kinds(**facts) == ["claimed", "started", "renewed", "lease"]
    assert kinds(apart=SECOND, **facts) == ["claimed", "lease"]


def test_an_unclear_end_is_told_before_the_attempt_that_follows():
    facts: dict[str, Any] = {"uncertain": True, "finished": BEGIN + 10, "status": "held"}
    assert kinds(**facts) == ["claimed", "unclear", "ended"]
    again = kinds(**(facts | {"attempt": 2, "started": BEGIN + 20, "status": "completed"}))
    assert again == ["claimed", "unclear", "started", "ended"]
