"""What an attempt leaves for the next one: facts it noted and steps it has done, as bytes.

Only the owner of an attempt writes notes, and it writes all of them each time. The revision
grows with every write, so a write that arrives late cannot undo a newer one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from oncekey.codec import PLAIN, NotKeepableError, UnreadableBytesError
from oncekey.errors import ConfigurationError

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
