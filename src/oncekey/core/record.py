"""The record: everything that a store keeps about one scope and key.

Its notes are what an attempt leaves for the next one, as bytes: facts, and the steps that are done.
Only the owner of the record writes notes, and it writes all of them each time. The revision grows
with every write, so that a write that arrives late cannot undo a newer one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from oncekey.core.audit import AuditEntry, entry_of
from oncekey.core.codec import PLAIN, NotKeepableError, UnreadableBytesError, error_words
from oncekey.errors import ConfigurationError, UnreadableError

LARGEST: Final = 64 * 1024


class Notes(msgspec.Struct):
    """Facts by name, and encoded results of steps by name (None: done, but not kept)."""

    facts: dict[str, Any] = {}
    steps: dict[str, bytes | None] = {}

    def with_facts(self, facts: dict[str, object]) -> Notes:
        """Return these notes with the new facts added.

        Raise ConfigurationError if a fact is not a plain value, or if the notes become too large.
        """
        try:
            PLAIN.encode(facts)
        except NotKeepableError as error:
            msg = f"a note must be plain values (str, int, list, dict ...): {error}"
            raise ConfigurationError(msg) from None
        noted = Notes({**self.facts, **facts}, self.steps)
        if len(noted.encode()) > LARGEST:
            msg = f"all notes of one record must fit in {LARGEST // 1024} KiB; note a reference"
            raise ConfigurationError(msg)
        return noted

    def with_step(self, name: str, result: bytes | None) -> Notes:
        """Return these notes with one more step. Leave out its result if it would not fit."""
        noted = Notes(self.facts, {**self.steps, name: result})
        if len(noted.encode()) > LARGEST:
            return Notes(self.facts, {**self.steps, name: None})
        return noted

    def encode(self) -> bytes:
        """Return the bytes that a store keeps."""
        return _encode(self)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Notes)


def read_notes(data: bytes) -> Notes:
    """Decode the notes. Raise UnreadableBytesError if the bytes are not notes."""
    if not data:
        return Notes()
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBytesError(str(error)) from None


# The record: everything a store keeps about one scope and key.


Status = Literal["running", "completed", "failed", "released", "held"]

FORMAT: Final = 1
"""The version of the record's format. A reader refuses records that are newer than itself."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Record(Struct, frozen=True, gc=False):
    """A record of one scope and key. Times are microseconds of the store's clock; 0 is not yet.

    `expires` is 0 for a record that never expires. `finished` is the time at which the last attempt
    ended, or, while the record is uncertain, at which the uncertain attempt ended. `result` is None
    if none was kept; a result that is None is kept as bytes like any other.
    """

    # Stores make one for every answer, and pass the fields without defaults by position: Python
    # builds a dictionary for a call with more than fifteen keywords, which takes as long as all the
    # rest.
    scope: str | None
    key: str
    status: Status
    fingerprint: str | None
    token: int
    nonce: str
    attempt: int
    created: int
    started: int
    updated: int
    lease_end: int
    expires: int
    finished: int = 0
    result: bytes | None = None
    error: bytes | None = None
    noted: bytes = b""
    revision: int = 0
    uncertain: bool = False
    label: str = ""
    reference: str = ""
    version: int = FORMAT
    hand: bytes = b""
    """Who resolved it by hand, when and why, as `audit.stamped` wrote it; or empty."""

    @property
    def notes(self) -> dict[str, Any]:
        """The facts that attempts have noted. Raise UnreadableError if they cannot be decoded."""
        return self._read_notes().facts

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps that attempts have done."""
        return tuple(self._read_notes().steps)

    @property
    def value(self) -> Any:
        """The kept result as plain values, without the types of the function, or None."""
        if self.result is None:
            return None
        try:
            return PLAIN.decode(self.result)
        except UnreadableBytesError as error:
            msg = f"the result of {self.key!r} cannot be read: {error}"
            raise UnreadableError(msg, key=self.key, scope=self.scope) from None

    @property
    def failure(self) -> str:
        """The last error as text, or an empty string."""
        return error_words(self.error) if self.error else ""

    @property
    def resolved(self) -> AuditEntry | None:
        """Who resolved it by hand the last time, when and why, or None."""
        return entry_of(self.hand)

    def at(
        self, name: Literal["created", "started", "updated", "finished", "expires", "lease_end"]
    ) -> datetime | None:
        """Return one of the times as a datetime in UTC, or None for not yet or never."""
        moment: int = getattr(self, name)
        return _EPOCH + timedelta(microseconds=moment) if moment else None

    def _read_notes(self) -> Notes:
        try:
            return read_notes(self.noted)
        except UnreadableBytesError as error:
            msg = f"the notes of {self.key!r} cannot be read: {error}"
            raise UnreadableError(msg, key=self.key, scope=self.scope) from None
