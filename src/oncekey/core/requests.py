"""The requests that a store understands, and its answers.

A request holds everything that the store needs to decide in one atomic step. It may be sent again
after a lost reply. A claim or a write of an attempt then gets the same answer, or learns that
another attempt came in between; a resolve or a forget finds its work done.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct

from oncekey.core.record import Record, Status

OnExpired = Literal["take", "hold"]


class Request(Struct, gc=False):
    """Base of all requests: which record it is about."""

    scope: str | None
    key: str


class Claim(Request, kw_only=True):
    """Ask to run the call. The caller chooses the nonce, and uses it again when it asks again."""

    nonce: str
    fingerprint: str | None
    lease: int
    ttl: int
    on_expired: OnExpired = "take"
    max_attempts: int | None = None
    label: str = ""
    reference: str = ""


class Owned(Request, kw_only=True):
    """A write of the attempt that owns the record, proved by token and nonce."""

    token: int
    nonce: str


class Renew(Owned, kw_only=True):
    """Extend the lease: it ends `lease` microseconds from now."""

    lease: int
    ttl: int


class Note(Owned, kw_only=True):
    """Store the notes for the next attempt, unless newer ones are stored already."""

    noted: bytes
    revision: int


class Settle(Owned, kw_only=True):
    """Store the result or the final error, which duplicates get from now on."""

    status: Literal["completed", "failed"]
    result: bytes | None
    error: bytes | None
    ttl: int


class Release(Owned, kw_only=True):
    """Give the record back without an answer.

    `uncertain`: the effect may have happened. `unused`: the code never ran, so this does not count
    as an attempt. `counted`: the number of attempts is limited, so it must not be forgotten.
    `bare_ttl` is how long the record lives if it has nothing that must be remembered: as long as a
    delayed copy of its claim may arrive.
    """

    error: bytes | None
    uncertain: bool
    hold: bool
    unused: bool
    counted: bool
    bare_ttl: int
    ttl: int


class Resolve(Request, kw_only=True):
    """End a held record, as a human or `reconcile` decided. The token is the one that was read."""

    token: int
    status: Literal["completed", "failed", "released"]
    result: bytes | None
    error: bytes | None
    ttl: int
    audit: bytes = b""
    """An entry for the audit trail, which the store keeps if it changes the record; or empty."""


class Forget(Request, kw_only=True):
    """Remove the record, as if the key had never been used. The token is the one that was read."""

    token: int
    force: bool
    audit: bytes = b""


class Scan(Struct, kw_only=True, gc=False):
    """List the records that have not expired, by scope and key, one page at a time."""

    scope: str | None = None
    any_scope: bool = True
    status: Status | None = None
    after: tuple[str, str] | None = None
    limit: int = 100


class Page(Struct):
    """Some records, and where the next page starts, or None at the end."""

    records: list[Record]
    after: tuple[str, str] | None


class Answer(Struct, gc=False):
    """The answer to a claim: the record as it is now, and the store's time."""

    record: Record
    now: int


class Granted(Answer):
    """The caller owns the record until the lease ends, and runs the code."""


class Busy(Answer):
    """Another attempt is running."""


class Replay(Answer):
    """The record is settled and has the answer."""


class Mismatch(Answer):
    """The key was used with another fingerprint."""


class Held(Answer):
    """The outcome of an earlier attempt is unknown."""


class Spent(Answer):
    """The same claim was granted and released before. Ask with a new nonce."""


class Verdict(Enum):
    """The answer to a write."""

    DONE = "done"
    ENDED = "ended"  # owned by this attempt, but settled or released already
    LOST = "lost"  # not owned by this attempt, or no longer
