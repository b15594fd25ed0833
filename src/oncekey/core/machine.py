"""The machine: every rule about what may happen to a record, as pure functions.

Each function takes the record (or None), the request and the store's time, and returns the new
record and the answer. None of them reads a clock or does I/O. Every store applies these rules in
one atomic step: memory and SQLite call them, the others implement them in their own language, and
the model test compares those with this file.

The theory, in seven points.

1. A record has one owner at a time: the attempt whose token *and* nonce are in it. Every write
   must show both, so an attempt that was paused, cut off or taken over can do no harm.
2. Tokens grow: a new one is larger than the record's last one, and at least the store's time in
   microseconds. So other systems can refuse an old attempt by its token alone. A number can
   return only if a record was forgotten and the clock stood still or went back.
3. The caller chooses a nonce before it claims. If the reply is lost, it asks again with the same
   nonce and gets the same answer. After a release the nonce is spent, so that a request that was
   delayed in the network cannot claim for a caller that is gone.
4. A lease that ran out proves nothing about the effect. The next attempt inherits the notes and
   learns that the end was uncertain. Under `hold` there is no next attempt until a human allows
   it. The old owner may still settle, or say that nothing happened, as long as no other attempt
   was granted the record.
5. A settled call never runs again while the record lives. A released one may run again.
6. The fingerprint is checked before anything else, also on take-over: a key never changes its
   meaning while something of the earlier meaning is left. Only a definite release without notes
   leaves nothing.
7. An expired record is the same as none, except that its token still counts.

`TABLE`, at the end of this file, says the same row by row. The diagram in the docs is drawn from
it, and the tests check that the functions below do what it says and nothing else.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeGuard

from msgspec.structs import replace

from oncekey.core.audit import stamped
from oncekey.core.fingerprint import differ
from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Busy,
    Claim,
    Forget,
    Granted,
    Held,
    Mismatch,
    Note,
    Owned,
    Release,
    Renew,
    Replay,
    Resolve,
    Settle,
    Spent,
    Verdict,
)

MINUTE: Final = 60_000_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def claim(record: Record | None, ask: Claim, now: int) -> tuple[Record, Answer]:
    """Grant the record to the caller, or answer why not."""
    if record is None or expired(record, now):
        return _first(record, ask, now)
    if _means_something_else(record, ask):
        return record, Mismatch(record, now)
    if record.status == "running":
        return _claim_running(record, ask, now)
    if record.status == "released":
        return _claim_released(record, ask, now)
    if record.status == "held":
        return record, Held(record, now)
    return record, Replay(record, now)


def _claim_running(record: Record, ask: Claim, now: int) -> tuple[Record, Answer]:
    if record.nonce == ask.nonce:
        return record, Granted(record, now)
    if now < record.lease_end:
        return record, Busy(record, now)
    if ask.on_expired == "hold" or not _attempts_left(record, ask):
        return _held(record, now, finished=record.lease_end, uncertain=True)
    lapsed = replace(record, uncertain=True, finished=record.lease_end)
    return _next(lapsed, ask, now)


def _claim_released(record: Record, ask: Claim, now: int) -> tuple[Record, Answer]:
    if record.nonce == ask.nonce:
        return record, Spent(record, now)
    if differ(record.fingerprint, ask.fingerprint):
        return _first(record, ask, now)
    if not _attempts_left(record, ask):
        return _held(record, now, finished=record.finished, uncertain=record.uncertain)
    return _next(record, ask, now)


def renew(record: Record | None, ask: Renew, now: int) -> tuple[Record | None, Verdict]:
    """Extend the owner's lease: it ends `ask.lease` microseconds from now."""
    if not _owns(record, ask, now):
        return record, Verdict.LOST
    if record.status != "running":
        return record, Verdict.ENDED
    end = now + ask.lease
    expires = max(_running_until(end, ask.ttl), _promised(record))
    return replace(record, lease_end=end, updated=now, expires=expires), Verdict.DONE


def note(record: Record | None, ask: Note, now: int) -> tuple[Record | None, Verdict]:
    """Store the owner's notes, unless newer ones are stored already."""
    if not _owns(record, ask, now):
        return record, Verdict.LOST
    if record.status not in ("running", "held"):
        return record, Verdict.ENDED
    if ask.revision <= record.revision:
        return record, Verdict.DONE
    return replace(record, noted=ask.noted, revision=ask.revision, updated=now), Verdict.DONE


def settle(record: Record | None, ask: Settle, now: int) -> tuple[Record | None, Verdict]:
    """Store the owner's answer, which duplicates get until the ttl is over."""
    if not _owns(record, ask, now):
        return record, Verdict.LOST
    if record.status in ("running", "held"):
        return _settled(record, ask, now), Verdict.DONE
    return record, Verdict.DONE if record.status == ask.status else Verdict.ENDED


def release(record: Record | None, ask: Release, now: int) -> tuple[Record | None, Verdict]:
    """Release the key at once, or hold it. Notes and errors stay for the next attempt.

    A record that was held because its lease ended is released too if its attempt says that nothing
    happened.
    """
    if not _owns(record, ask, now):
        return record, Verdict.LOST
    held = record.status == "held"
    if record.status != "running" and not (held and _definite(ask)):
        same = record.status == ("held" if ask.hold else "released")
        return record, Verdict.DONE if same else Verdict.ENDED
    # What made a first attempt uncertain can only be the end of its lease.
    before = record.uncertain and not (held and record.attempt <= 1)
    uncertain = before or ask.uncertain
    left = replace(
        record,
        error=ask.error if ask.error is not None else record.error,
        attempt=max(0, record.attempt - ask.unused),
        lease_end=now,
    )
    # A definite end does not change the time since which the record has been uncertain.
    finished = record.finished if uncertain and not ask.uncertain else now
    if ask.hold:
        return _held(left, now, finished=finished, uncertain=uncertain)[0], Verdict.DONE
    remembered = bool(left.noted) or uncertain or (ask.counted and left.attempt > 0)
    until = now + (max(ask.ttl, DAY) if remembered else ask.bare_ttl)
    return replace(
        left,
        status="released",
        uncertain=uncertain,
        updated=now,
        finished=finished,
        expires=max(until, _promised(record)),
    ), Verdict.DONE


def resolve(record: Record | None, ask: Resolve, now: int) -> tuple[Record | None, Verdict]:
    """End a held record as decided. Its last attempt can no longer write."""
    if record is None or record.status != "held" or record.token != ask.token:
        return record, Verdict.LOST
    token = _next_token(record, now)  # shuts out the attempt, which may still be running
    hand = stamped(ask.audit, now) or record.hand
    if ask.status != "released":
        return replace(_settled(record, ask, now), token=token, hand=hand), Verdict.DONE
    return replace(
        record,
        status="released",
        token=token,
        hand=hand,
        attempt=0,  # "run it again" gives it all its attempts again
        uncertain=False,
        updated=now,
        finished=now,
        expires=now + max(ask.ttl, DAY),
    ), Verdict.DONE


def forget(record: Record | None, ask: Forget, now: int) -> tuple[Record | None, Verdict]:
    """Remove the record. An attempt that is running can no longer write."""
    if record is None or expired(record, now):
        return None, Verdict.DONE
    alive = record.status in ("running", "held")
    if record.token != ask.token or (alive and not ask.force):
        return record, Verdict.LOST
    return None, Verdict.DONE


def answers(record: Record, fingerprint: str | None, now: int) -> bool:
    """Return whether `claim` would answer Replay to this fingerprint, without a request."""
    settled = record.status in ("completed", "failed")
    return settled and not expired(record, now) and not differ(record.fingerprint, fingerprint)


def expired(record: Record, now: int) -> bool:
    """Return whether the record counts as absent."""
    return 0 < record.expires <= now


def purgeable(record: Record, now: int, grace: int) -> bool:
    """Return whether the record may be removed: expired for longer than the grace period."""
    return 0 < record.expires <= now - grace


# Helpers of the functions above


def _owns(record: Record | None, ask: Owned, now: int) -> TypeGuard[Record]:
    return (
        record is not None
        and record.token == ask.token
        and record.nonce == ask.nonce
        and not expired(record, now)
    )


def _means_something_else(record: Record, ask: Claim) -> bool:
    if record.status == "released" and not (record.noted or record.uncertain):
        return False
    return differ(record.fingerprint, ask.fingerprint)


def _attempts_left(record: Record, ask: Claim) -> bool:
    return ask.max_attempts is None or record.attempt < ask.max_attempts


def _next_token(record: Record | None, now: int) -> int:
    return now if record is None else max(record.token + 1, now)


def _running_until(lease_end: int, ttl: int) -> int:
    return lease_end + max(ttl, DAY)


def _promised(record: Record) -> int:
    """Return how long an uncertain end is remembered at least: no later attempt shortens it."""
    return record.expires if record.uncertain else 0


def _definite(ask: Release) -> bool:
    return not (ask.uncertain or ask.hold)


def _first(record: Record | None, ask: Claim, now: int) -> tuple[Record, Answer]:
    """Grant the first attempt."""
    end = now + ask.lease
    granted = Record(
        scope=ask.scope,
        key=ask.key,
        status="running",
        fingerprint=ask.fingerprint,
        token=_next_token(record, now),
        nonce=ask.nonce,
        attempt=1,
        lease_end=end,
        label=ask.label,
        reference=ask.reference,
        created=now,
        started=now,
        updated=now,
        expires=_running_until(end, ask.ttl),
    )
    return granted, Granted(granted, now)


def _next(record: Record, ask: Claim, now: int) -> tuple[Record, Answer]:
    """Grant the next attempt. Notes, error and time of creation stay."""
    end = now + ask.lease
    granted = replace(
        record,
        status="running",
        fingerprint=record.fingerprint if ask.fingerprint is None else ask.fingerprint,
        token=_next_token(record, now),
        nonce=ask.nonce,
        attempt=record.attempt + 1,
        lease_end=end,
        label=ask.label or record.label,
        reference=ask.reference or record.reference,
        started=now,
        updated=now,
        expires=max(_running_until(end, ask.ttl), _promised(record)),
    )
    return granted, Granted(granted, now)


def _held(record: Record, now: int, *, finished: int, uncertain: bool) -> tuple[Record, Answer]:
    held = replace(
        record, status="held", updated=now, finished=finished, uncertain=uncertain, expires=0
    )
    return held, Held(held, now)


def _settled(record: Record, ask: Settle | Resolve, now: int) -> Record:
    return replace(
        record,
        status=ask.status,
        result=ask.result,
        error=ask.error,
        uncertain=False,
        updated=now,
        finished=now,
        expires=now + ask.ttl,
    )


# The machine's table: what each input does to a record in each status.
#
# It is data for people and for tests. The diagram in the docs is drawn from it. The tests try every
# input in every status: each row must be true, and nothing may happen that is not a row.


class Row(NamedTuple):
    """One row of the table: the status and the input, then the new status and the answer."""

    status: str
    verb: str
    when: str
    becomes: str
    answer: str


TABLE: Final = (
    Row("none", "claim", "", "running", "Granted"),
    Row("running", "claim", "other fingerprint", "running", "Mismatch"),
    Row("running", "claim", "own nonce again", "running", "Granted"),
    Row("running", "claim", "lease alive", "running", "Busy"),
    Row("running", "claim", "lease over, attempts left", "running", "Granted"),
    Row("running", "claim", "lease over, hold or attempts used up", "held", "Held"),
    Row("released", "claim", "other fingerprint, notes or uncertain", "released", "Mismatch"),
    Row("released", "claim", "nonce of the released attempt", "released", "Spent"),
    Row("released", "claim", "other fingerprint, nothing left: afresh", "running", "Granted"),
    Row("released", "claim", "attempts left", "running", "Granted"),
    Row("released", "claim", "attempts used up", "held", "Held"),
    Row("completed", "claim", "other fingerprint", "completed", "Mismatch"),
    Row("completed", "claim", "", "completed", "Replay"),
    Row("failed", "claim", "other fingerprint", "failed", "Mismatch"),
    Row("failed", "claim", "", "failed", "Replay"),
    Row("held", "claim", "other fingerprint", "held", "Mismatch"),
    Row("held", "claim", "", "held", "Held"),
    Row("running", "settle", "completed, by owner", "completed", "done"),
    Row("running", "settle", "failed, by owner", "failed", "done"),
    Row("held", "settle", "completed, by owner", "completed", "done"),
    Row("held", "settle", "failed, by owner", "failed", "done"),
    Row("completed", "settle", "the same again", "completed", "done"),
    Row("completed", "settle", "failed, by owner", "completed", "ended"),
    Row("failed", "settle", "the same again", "failed", "done"),
    Row("failed", "settle", "completed, by owner", "failed", "ended"),
    Row("released", "settle", "by owner", "released", "ended"),
    Row("running", "renew", "by owner", "running", "done"),
    Row("held", "renew", "by owner", "held", "ended"),
    Row("released", "renew", "by owner", "released", "ended"),
    Row("completed", "renew", "by owner", "completed", "ended"),
    Row("failed", "renew", "by owner", "failed", "ended"),
    Row("running", "note", "by owner", "running", "done"),
    Row("held", "note", "by owner", "held", "done"),
    Row("released", "note", "by owner", "released", "ended"),
    Row("completed", "note", "by owner", "completed", "ended"),
    Row("failed", "note", "by owner", "failed", "ended"),
    Row("running", "release", "by owner", "released", "done"),
    Row("running", "release", "uncertain under hold, by owner", "held", "done"),
    Row("released", "release", "the same again", "released", "done"),
    Row("released", "release", "under hold, by owner", "released", "ended"),
    Row("held", "release", "the same again", "held", "done"),
    Row("held", "release", "definite, by owner", "released", "done"),
    Row("held", "release", "uncertain, not under hold, by owner", "held", "ended"),
    Row("completed", "release", "by owner", "completed", "ended"),
    Row("failed", "release", "by owner", "failed", "ended"),
    Row("held", "resolve", "completed, token as read", "completed", "done"),
    Row("held", "resolve", "failed, token as read", "failed", "done"),
    Row("held", "resolve", "retry, token as read", "released", "done"),
    Row("completed", "forget", "token as read", "none", "done"),
    Row("failed", "forget", "token as read", "none", "done"),
    Row("released", "forget", "token as read", "none", "done"),
    Row("running", "forget", "forced, token as read", "none", "done"),
    Row("held", "forget", "forced, token as read", "none", "done"),
    Row("none", "forget", "", "none", "done"),
)
"""An input that is not here leaves the record as it is, and the answer is `lost`."""
