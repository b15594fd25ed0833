"""Records as they lie in Redis, also where a newer release has written them."""

from __future__ import annotations

from typing import Final, cast

from msgspec.structs import replace

from oncekey.core.record import FORMAT, Record, Status
from oncekey.stores.redis.commands import CAUGHT, MAGIC, STATUS_AT, STATUSES, record_of

UNKNOWN: Final = cast("Status", "unknown")
"""The status of a record whose form this release does not understand."""

_STATUSES: Final = {MAGIC + bytes((FORMAT, code)): status for code, status in enumerate(STATUSES)}


def status_in(start: bytes) -> str | None:
    """The status, told by the first bytes of a record; None: they are somebody else's."""
    return _STATUSES.get(start, UNKNOWN) if start.startswith(MAGIC) else None


def as_written(
    scope: str | None, key: str, stored: bytes | None, *, whole: bool = True
) -> Record | None:
    """The record; what cannot be understood is left empty. None: this is somebody else's.

    Bytes that are not `whole` end before the result.
    """
    if stored is None or not stored.startswith(MAGIC):
        return None
    try:
        found = record_of(scope, key, stored)
    except CAUGHT:
        version = stored[STATUS_AT - 1 : STATUS_AT]
        return _nameless(scope, key, version[0] if version else 0)
    return found if whole else replace(found, result=None)


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
        version=version,
    )
