"""Records of Redis hashes, also where a newer release has written them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec import DecodeError
from msgspec.msgpack import decode, encode
from msgspec.structs import replace

from oncekey.errors import UnreadableError
from oncekey.looking.ask import STATUSES
from oncekey.record import FORMAT, Record, Status
from oncekey.stores import redis_codec as codec

UNKNOWN: Final = cast("Status", "unknown")
"""The status of a record whose form this release does not understand."""

_STATUSES: Final = {
    encode([FORMAT, code, *range(14)])[:5]: status for code, status in enumerate(STATUSES)
}
"""An array of sixteen, the version and the status: five bytes."""

Fields = Sequence[bytes | None]
"""What the hash has under m, e, n and r, in this order; r may be left out."""


def status_in(head: bytes) -> str:
    """The status, told by the first bytes of a packed record."""
    return _STATUSES.get(head, UNKNOWN)


def as_written(scope: str | None, key: str, fields: Fields) -> Record | None:
    """The record; what cannot be understood is left empty. None: the hash is somebody else's."""
    packed, error, noted, *result = fields
    if packed is None:
        return None
    version = -1
    try:
        facts: Any = decode(packed)
        version = int(facts[0])
        if version > FORMAT:
            packed = encode([FORMAT, *facts[1:]])
        found = codec.found(scope, key, [1, 0, packed, *(result or [None]), error, noted])
        return replace(found, version=version) if found and version > FORMAT else found
    except (DecodeError, UnreadableError, LookupError, TypeError, ValueError):
        return _nameless(scope, key, version)


def _nameless(scope: str | None, key: str, version: int) -> Record:
    """Nothing is known about the record but that it is there."""
    return Record(
        scope=scope,
        key=key,
        status=UNKNOWN,
        fingerprint=None,
        token=0,
        nonce="",
        attempt=0,
        lease_end=0,
        created=0,
        started=0,
        updated=0,
        expires=0,
        version=max(version, 0),
    )
