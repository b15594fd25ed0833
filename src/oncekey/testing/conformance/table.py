"""Each row of the machine's table as a scene: how to get to its status, and the request to try.

`prove` runs the scene of a row against a store. A row without a scene cannot be proved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from oncekey.core.machine import Row
from oncekey.core.record import Record
from oncekey.core.requests import Answer, Verdict
from oncekey.testing.conformance.base import OTHER, Desk, Tick

Reply = Answer | Verdict
Act = Callable[[], Reply]
Scene = Callable[[Desk, Tick], Act]
Ended = Literal["completed", "failed"]


def prove(row: Row, desk: Desk, tick: Tick) -> None:
    """Check that the row is true for this store."""
    act = SCENES[row.status, row.verb, row.when](desk, tick)
    assert desk.status() == row.status, "the scene did not get there"  # noqa: S101 - a proof
    reply = act()
    assert word(reply) == row.answer  # noqa: S101 - a proof
    assert desk.status() == row.becomes  # noqa: S101 - a proof
    if isinstance(reply, Answer):
        assert reply.record == desk.get()  # noqa: S101 - a proof


def word(reply: Reply) -> str:
    """Return the table's word for an answer."""
    return reply.value if isinstance(reply, Verdict) else type(reply).__name__


def reach(desk: Desk, status: str) -> Record:
    """Bring the record into this status. Return the record that its last attempt was granted."""
    owner = desk.grant("a")
    if status in ("completed", "failed"):
        desk.settle(owner, status=status)
    elif status == "released":
        desk.release(owner)
    elif status == "held":
        desk.hold(owner)
    elif status == "none":
        desk.forget(owner, force=True)
    return owner


def _claims(status: str, nonce: str = "b", **other: object) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        reach(desk, status)
        return lambda: desk.claim(nonce, **other)

    return scene


def _claims_after_lease(**other: object) -> Scene:
    def scene(desk: Desk, tick: Tick) -> Act:
        reach(desk, "running")
        tick(desk.lease)
        return lambda: desk.claim("b", **other)

    return scene


def _claims_after_noted_release(desk: Desk, _: Tick) -> Act:
    owner = desk.grant("a")
    desk.note(owner, b"noted", 1)
    desk.release(owner)
    return lambda: desk.claim("b", fingerprint=OTHER)


def _settles(status: str, end: Ended) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        owner = reach(desk, status)
        return lambda: desk.settle(owner, status=end)

    return scene


def _renews(status: str) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        owner = reach(desk, status)
        return lambda: desk.renew(owner)

    return scene


def _notes(status: str) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        owner = reach(desk, status)
        return lambda: desk.note(owner, b"noted", 1)

    return scene


def _releases(status: str, *, uncertain: bool = False, hold: bool = False) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        owner = reach(desk, status)
        return lambda: desk.release(owner, uncertain=uncertain or hold, hold=hold)

    return scene


def _resolves(end: Literal["completed", "failed", "released"]) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        owner = reach(desk, "held")
        return lambda: desk.resolve(owner, status=end)

    return scene


def _forgets(status: str, *, force: bool = False) -> Scene:
    def scene(desk: Desk, _: Tick) -> Act:
        owner = reach(desk, status)
        return lambda: desk.forget(owner, force=force)

    return scene


_OWNED: Final = "by owner"

SCENES: Final[dict[tuple[str, str, str], Scene]] = {
    ("none", "claim", ""): _claims("none"),
    ("running", "claim", "other fingerprint"): _claims("running", fingerprint=OTHER),
    ("running", "claim", "own nonce again"): _claims("running", "a"),
    ("running", "claim", "lease alive"): _claims("running"),
    ("running", "claim", "lease over, attempts left"): _claims_after_lease(max_attempts=2),
    ("running", "claim", "lease over, hold or attempts used up"): _claims_after_lease(
        on_expired="hold"
    ),
    ("released", "claim", "other fingerprint, notes or uncertain"): _claims_after_noted_release,
    ("released", "claim", "nonce of the released attempt"): _claims("released", "a"),
    ("released", "claim", "other fingerprint, nothing left: afresh"): _claims(
        "released", fingerprint=OTHER
    ),
    ("released", "claim", "attempts left"): _claims("released", max_attempts=2),
    ("released", "claim", "attempts used up"): _claims("released", max_attempts=1),
    ("completed", "claim", "other fingerprint"): _claims("completed", fingerprint=OTHER),
    ("completed", "claim", ""): _claims("completed"),
    ("failed", "claim", "other fingerprint"): _claims("failed", fingerprint=OTHER),
    ("failed", "claim", ""): _claims("failed"),
    ("held", "claim", "other fingerprint"): _claims("held", fingerprint=OTHER),
    ("held", "claim", ""): _claims("held"),
    ("running", "settle", "completed, by owner"): _settles("running", "completed"),
    ("running", "settle", "failed, by owner"): _settles("running", "failed"),
    ("held", "settle", "completed, by owner"): _settles("held", "completed"),
    ("held", "settle", "failed, by owner"): _settles("held", "failed"),
    ("completed", "settle", "the same again"): _settles("completed", "completed"),
    ("completed", "settle", "failed, by owner"): _settles("completed", "failed"),
    ("failed", "settle", "the same again"): _settles("failed", "failed"),
    ("failed", "settle", "completed, by owner"): _settles("failed", "completed"),
    ("released", "settle", _OWNED): _settles("released", "completed"),
    ("running", "renew", _OWNED): _renews("running"),
    ("held", "renew", _OWNED): _renews("held"),
    ("released", "renew", _OWNED): _renews("released"),
    ("completed", "renew", _OWNED): _renews("completed"),
    ("failed", "renew", _OWNED): _renews("failed"),
    ("running", "note", _OWNED): _notes("running"),
    ("held", "note", _OWNED): _notes("held"),
    ("released", "note", _OWNED): _notes("released"),
    ("completed", "note", _OWNED): _notes("completed"),
    ("failed", "note", _OWNED): _notes("failed"),
    ("running", "release", _OWNED): _releases("running"),
    ("running", "release", "uncertain under hold, by owner"): _releases("running", hold=True),
    ("released", "release", "the same again"): _releases("released"),
    ("released", "release", "under hold, by owner"): _releases("released", hold=True),
    ("held", "release", "the same again"): _releases("held", hold=True),
    ("held", "release", "definite, by owner"): _releases("held"),
    ("held", "release", "uncertain, not under hold, by owner"): _releases("held", uncertain=True),
    ("completed", "release", _OWNED): _releases("completed"),
    ("failed", "release", _OWNED): _releases("failed"),
    ("held", "resolve", "completed, token as read"): _resolves("completed"),
    ("held", "resolve", "failed, token as read"): _resolves("failed"),
    ("held", "resolve", "retry, token as read"): _resolves("released"),
    ("completed", "forget", "token as read"): _forgets("completed"),
    ("failed", "forget", "token as read"): _forgets("failed"),
    ("released", "forget", "token as read"): _forgets("released"),
    ("running", "forget", "forced, token as read"): _forgets("running", force=True),
    ("held", "forget", "forced, token as read"): _forgets("held", force=True),
    ("none", "forget", ""): _forgets("none"),
}
