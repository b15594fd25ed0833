"""The verbs that a store understands, and what it answers.

A request holds everything the store needs to decide in one atomic step. It may be sent again
after a lost reply: a claim or a write of an attempt is then answered as it was, or told who came
in between; a resolve or a forget finds its work done.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct

from oncekey.core.record import Record, Status

OnExpired = Literal["take", "hold"]


class Request(Struct, gc=False):
    """What every verb names: the record it is about."""

    scope: str | None
    key: str


class Claim(Request, kw_only=True):
    """May I run this? The nonce is the asker's own, and the same when it asks again."""

    nonce: str
    fingerprint: str | None
    lease: int
    ttl: int
    on_expired: OnExpired = "take"
    max_attempts: int | None = None
    label: str = ""
    reference: str = ""


class Owned(Request, kw_only=True):
    """A write of the attempt that owns the record: token and nonce prove it."""

    token: int
    nonce: str


class Renew(Owned, kw_only=True):
    """I am still at it: the lease ends a lease's length from now."""

    lease: int
    ttl: int


class Note(Owned, kw_only=True):
    """Keep these notes for whoever comes after me, unless newer ones are kept already."""

    noted: bytes
    revision: int


class Settle(Owned, kw_only=True):
    """It is done, or failed for good: answer duplicates with this from now on."""

    status: Literal["completed", "failed"]
    result: bytes | None
    error: bytes | None
    ttl: int


class Release(Owned, kw_only=True):
    """I stop here without an answer.

    Uncertain: the effect may have happened. Unused: the code never ran, so this was no attempt.
    """

    error: bytes | None
    uncertain: bool
    hold: bool
    unused: bool
    lease: int
    ttl: int


class Resolve(Request, kw_only=True):
    """A human, or `reconcile`, says how a held record ends. The token is the one they read."""

    token: int
    status: Literal["completed", "failed", "released"]
    result: bytes | None
    error: bytes | None
    ttl: int


class Forget(Request, kw_only=True):
    """Remove the record, as if the key had never been used. The token is the one they read."""

    token: int
    force: bool


class Scan(Struct, kw_only=True, gc=False):
    """The living records in the order of scope and key, one page at a time."""

    scope: str | None = None
    any_scope: bool = True
    status: Status | None = None
    after: tuple[str, str] | None = None
    limit: int = 100


class Page(Struct):
    """Some records, and where the next page starts; None at the end."""

    records: list[Record]
    after: tuple[str, str] | None


class Answer(Struct, gc=False):
    """What a claim is told: the record as it is now, and the store's time."""

    record: Record
    now: int


class Granted(Answer):
    """Run it. You own the record until its lease ends."""


class Busy(Answer):
    """Another attempt runs it now."""


class Replay(Answer):
    """It is settled: here is the answer."""


class Mismatch(Answer):
    """The key was used for something else."""


class Held(Answer):
    """Nobody knows how an earlier attempt ended."""


class Spent(Answer):
    """The very same claim was granted and given back; ask with a new nonce."""


class Verdict(Enum):
    """What a write is told."""

    DONE = "done"
    ENDED = "ended"  # yours, but settled or released already
    LOST = "lost"  # not yours, or not any more
