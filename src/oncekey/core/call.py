"""One protected call: what it is about, and the requests it sends to a store."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct

from oncekey.core.codec import PLAIN, Codec
from oncekey.core.record import Record
from oncekey.core.requests import Claim, Note, Release, Renew, Settle
from oncekey.policy import Terms

Identity = tuple[str | None, str]
Surface = Literal["function", "http", "job", "enqueue", "message", "mark"]
"""Where a call came in. The key of a request over HTTP was chosen by whoever sent it."""


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
    """Whether the answer may come from the local cache, which misses what others forget."""
    surface: Surface = "function"
    trace: Any = None
    """What an observer that traces calls has hung on it."""

    @property
    def identity(self) -> Identity:
        """What makes it the same call as another."""
        return self.scope, self.key

    @property
    def name(self) -> str:
        """How people are told about it."""
        return repr(self.key) if self.scope is None else f"{self.key!r} in {self.scope!r}"

    def downstream_key(self, name: str) -> str:
        """A key for an effect elsewhere: the same for every attempt of this call."""
        parts = (self.scope or "", self.key, self.fingerprint or "", name)
        text = "".join(f"{len(part)}:{part}" for part in parts)  # lengths keep the parts apart
        return sha256(text.encode()).hexdigest()[:40]

    def claim(self, nonce: str) -> Claim:
        """Ask for the record. Whoever can ask `reconcile` takes over even what is to be held."""
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
        """Move the end of the lease."""
        return Renew(
            self.scope,
            self.key,
            token=record.token,
            nonce=record.nonce,
            lease=self.terms.lease,
            ttl=self.terms.ttl,
        )

    def note(self, record: Record, noted: bytes, revision: int) -> Note:
        """Keep the notes."""
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
        """Keep the answer."""
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
    ) -> Release:
        """Give the record back."""
        return Release(
            self.scope,
            self.key,
            token=record.token,
            nonce=record.nonce,
            error=error,
            uncertain=uncertain,
            hold=hold,
            unused=unused,
            lease=self.terms.lease,
            ttl=self.terms.ttl,
        )
