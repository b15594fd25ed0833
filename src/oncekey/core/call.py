"""A protected call: its key, its terms, and the requests that it sends to a store."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct

from oncekey.core.codec import PLAIN, Codec
from oncekey.core.machine import HOUR, MINUTE
from oncekey.core.record import Record
from oncekey.core.requests import Claim, Note, Release, Renew, Settle
from oncekey.policy import Terms

Identity = tuple[str | None, str]
Surface = Literal["function", "http", "job", "enqueue", "message", "mark"]
"""Where a call came in. Over HTTP the client chooses the key; elsewhere the program does."""


class Call(Struct, frozen=True, kw_only=True):
    """Everything that is known about a call before it is made."""

    scope: str | None
    key: str
    terms: Terms
    fingerprint: str | None = None
    label: str = ""
    reference: str = ""
    codec: Codec = PLAIN
    reconcile: Callable[[Record], Any] | None = None
    cached: bool = True
    """Whether the answer may come from the local cache.

    The cache does not notice when another process forgets the key.
    """
    surface: Surface = "function"
    trace: Any = None
    """The trace that an observer has attached to the call, or None."""

    @property
    def identity(self) -> Identity:
        """The scope and the key. Two calls with the same identity are the same call."""
        return self.scope, self.key

    @property
    def name(self) -> str:
        """The name of the call for messages."""
        return repr(self.key) if self.scope is None else f"{self.key!r} in {self.scope!r}"

    def downstream_key(self, name: str) -> str:
        """Return a key for an effect in another system, the same for every attempt of this call."""
        parts = (self.scope or "", self.key, self.fingerprint or "", name)
        text = "".join(f"{len(part)}:{part}" for part in parts)  # lengths keep the parts apart
        return sha256(text.encode()).hexdigest()[:40]

    def claim(self, nonce: str) -> Claim:
        """Return the request for the record.

        With `reconcile` the call takes over an attempt whose lease has ended, even if the terms say
        that it is to be held.
        """
        terms = self.terms
        return Claim(
            self.scope,
            self.key,
            nonce=nonce,
            fingerprint=self.fingerprint,
            lease=terms.lease,
            ttl=terms.ttl,
            on_expired="hold" if terms.hold and self.reconcile is None else "take",
            max_attempts=terms.max_attempts,
            label=self.label,
            reference=self.reference,
        )

    def renew(self, record: Record) -> Renew:
        """Return the request that extends the lease."""
        return Renew(
            self.scope,
            self.key,
            token=record.token,
            nonce=record.nonce,
            lease=self.terms.lease,
            ttl=self.terms.ttl,
        )

    def note(self, record: Record, noted: bytes, revision: int) -> Note:
        """Return the request that stores the notes."""
        return Note(
            self.scope,
            self.key,
            token=record.token,
            nonce=record.nonce,
            noted=noted,
            revision=revision,
        )

    def settle(
        self,
        record: Record,
        status: Literal["completed", "failed"],
        *,
        result: bytes | None = None,
        error: bytes | None = None,
    ) -> Settle:
        """Return the request that stores the result or the error."""
        return Settle(
            self.scope,
            self.key,
            token=record.token,
            nonce=record.nonce,
            status=status,
            result=result,
            error=error,
            ttl=self.terms.ttl,
        )

    def release(
        self,
        record: Record,
        error: bytes | None = None,
        *,
        uncertain: bool = False,
        hold: bool = False,
        unused: bool = False,
        brief: bool = False,
    ) -> Release:
        """Return the request that gives the record back without an answer.

        `brief` says that no copy of its claim can arrive late, so that an empty record may be
        forgotten soon.
        """
        return Release(
            self.scope,
            self.key,
            token=record.token,
            nonce=record.nonce,
            error=error,
            uncertain=uncertain,
            hold=hold,
            unused=unused,
            counted=self.terms.max_attempts is not None,
            bare_ttl=MINUTE if brief else HOUR,
            ttl=self.terms.ttl,
        )
