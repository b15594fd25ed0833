"""One key of a store, asked with short words."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Granted,
    Note,
    Release,
    Renew,
    Resolve,
    Settle,
    Verdict,
)
from oncekey.stores.base import Store

SAME: Final = "1:same"
OTHER: Final = "1:other"
NEWER: Final = "2:newer"
"""The fingerprint of the first asker, another one, and one of another version."""

DONE: Final = Verdict.DONE
ENDED: Final = Verdict.ENDED
LOST: Final = Verdict.LOST


class Desk:
    """Verbs about one scope and key. Whatever a test does not care about has a default."""

    def __init__(
        self,
        store: Store,
        *,
        lease: int,
        ttl: int,
        key: str = "order-1",
        scope: str | None = None,
    ) -> None:
        """Nothing is asked yet."""
        self.store = store
        self.lease = lease
        self.ttl = ttl
        self.key = key
        self.scope = scope

    def at(self, key: str, scope: str | None = None) -> Desk:
        """A desk for another key of the same store."""
        return Desk(self.store, lease=self.lease, ttl=self.ttl, key=key, scope=scope)

    def ask(self, nonce: str, **other: object) -> Claim:
        """A claim, not yet sent."""
        ask = Claim(
            self.scope, self.key, nonce=nonce, fingerprint=SAME, lease=self.lease, ttl=self.ttl
        )
        return replace(ask, **other)

    def claim(self, nonce: str, **other: object) -> Answer:
        """What a claim is told."""
        return self.store.claim(self.ask(nonce, **other))

    def grant(self, nonce: str, **other: object) -> Record:
        """The record, owned by whoever uses this nonce."""
        answer = self.claim(nonce, **other)
        assert type(answer) is Granted, answer  # noqa: S101 - a step of a test that must succeed
        assert answer.record.nonce == nonce  # noqa: S101 - the same
        return answer.record

    def renew(self, owner: Record, **other: object) -> Verdict:
        """The owner is still at it."""
        ask = Renew(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            lease=self.lease,
            ttl=self.ttl,
        )
        return self.store.renew(replace(ask, **other))

    def note(self, owner: Record, noted: bytes, revision: int, **other: object) -> Verdict:
        """The owner notes something."""
        ask = Note(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            noted=noted,
            revision=revision,
        )
        return self.store.note(replace(ask, **other))

    def settle(self, owner: Record, **other: object) -> Verdict:
        """The owner is done."""
        ask = Settle(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            status="completed",
            result=b"result",
            error=None,
            ttl=self.ttl,
        )
        return self.store.settle(replace(ask, **other))

    def release(self, owner: Record, **other: object) -> Verdict:
        """The owner gives up; by default after a definite error."""
        ask = Release(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            error=b"error",
            uncertain=False,
            hold=False,
            unused=False,
            lease=self.lease,
            ttl=self.ttl,
        )
        return self.store.release(replace(ask, **other))

    def hold(self, owner: Record) -> Verdict:
        """The owner ends without knowing how, and nobody may go on."""
        return self.release(owner, uncertain=True, hold=True)

    def resolve(self, read: Record, **other: object) -> Verdict:
        """Somebody who has read the record decides how it ended."""
        ask = Resolve(
            self.scope,
            self.key,
            token=read.token,
            status="completed",
            result=b"resolved",
            error=None,
            ttl=self.ttl,
        )
        return self.store.resolve(replace(ask, **other))

    def forget(self, read: Record, *, force: bool = False) -> Verdict:
        """Somebody who has read the record wants it gone."""
        return self.store.forget(Forget(self.scope, self.key, token=read.token, force=force))

    def get(self) -> Record | None:
        """The living record, if there is one."""
        return self.store.get(self.scope, self.key)

    def read(self) -> Record:
        """The living record, which must be there."""
        record = self.get()
        assert record is not None, self.key  # noqa: S101 - a step of a test that must succeed
        return record

    def status(self) -> str:
        """The word of the table for what is stored."""
        record = self.get()
        return "none" if record is None else record.status
