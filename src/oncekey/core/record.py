"""The record: everything a store keeps about one scope and key.

Its notes are what an attempt leaves for the next one: facts it noted and steps it has done, as
bytes. Only the owner of an attempt writes notes, and it writes all of them each time. The revision
grows with every write, so a write that arrives late cannot undo a newer one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from oncekey.core.codec import PLAIN, NotKeepableError, UnreadableBytesError, error_words
from oncekey.errors import ConfigurationError, UnreadableError

LARGEST: Final = 64 * 1024


class Notes(msgspec.Struct):
    """Facts by name, and the encoded results of steps by name (None: done, result not kept)."""

    facts: dict[str, Any] = {}
    steps: dict[str, bytes | None] = {}

    def with_facts(self, facts: dict[str, object]) -> Notes:
        """These notes and the new facts, which must be plain values that fit."""
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
        """These notes and one more step; a result too large to fit is left out."""
        noted = Notes(self.facts, {**self.steps, name: result})
        if len(noted.encode()) > LARGEST:
            return Notes(self.facts, {**self.steps, name: None})
        return noted

    def encode(self) -> bytes:
        """The bytes that a store keeps."""
        return _encode(self)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Notes)


def read_notes(data: bytes) -> Notes:
    """The notes in the bytes that a store kept; UnreadableBytesError when they are not notes."""
    if not data:
        return Notes()
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBytesError(str(error)) from None


# The record: everything a store keeps about one scope and key.


Status = Literal["running", "completed", "failed", "released", "held"]

FORMAT: Final = 1
"""The version of the record's form. A reader refuses what is newer than itself."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Record(Struct, frozen=True, gc=False):
    """One scope and key. Times are microseconds of the store's clock; 0 stands for not yet.

    `expires` is 0 for a record that never does. `finished` is when the last attempt ended, or,
    while the record is uncertain, when the uncertain attempt did. `result` is None where none
    was kept; a result that is None is kept as bytes like any other.
    """

    # Stores make one for every answer, and give those without defaults by position: Python builds
    # a dictionary for a call with more than fifteen names, which takes as long as all the rest.
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

    @property
    def notes(self) -> dict[str, Any]:
        """The facts that attempts have noted."""
        return self._read_notes().facts

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps that attempts have done."""
        return tuple(self._read_notes().steps)

    @property
    def value(self) -> Any:
        """The kept result as plain values, without the types of the function."""
        if self.result is None:
            return None
        try:
            return PLAIN.decode(self.result)
        except UnreadableBytesError as error:
            msg = f"the result of {self.key!r} cannot be read: {error}"
            raise UnreadableError(msg, key=self.key, scope=self.scope) from None

    @property
    def failure(self) -> str:
        """What went wrong last, in words; empty when nothing did."""
        return error_words(self.error) if self.error else ""

    def at(
        self, name: Literal["created", "started", "updated", "finished", "expires", "lease_end"]
    ) -> datetime | None:
        """One of the times as a datetime in UTC; None for not yet, or never."""
        moment: int = getattr(self, name)
        return _EPOCH + timedelta(microseconds=moment) if moment else None

    def _read_notes(self) -> Notes:
        try:
            return read_notes(self.noted)
        except UnreadableBytesError as error:
            msg = f"the notes of {self.key!r} cannot be read: {error}"
            raise UnreadableError(msg, key=self.key, scope=self.scope) from None
