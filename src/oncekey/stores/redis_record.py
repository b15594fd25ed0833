"""A record as Redis keeps it: one string, which `lua/record.lua` describes."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception like the others
from typing import Final

from oncekey.core.record import Record, Status

MAGIC: Final = b"once"
"""What a record begins with: others may keep strings of theirs under a key like ours."""
HEAD: Final = Struct(">4sBBBBBBBI8Q4H2I")
STATUSES: Final[tuple[Status, ...]] = ("running", "completed", "failed", "released", "held")
"""Each stands for its place, in the head."""
STATUS_AT: Final = 5
"""Which byte of the head is the status; the format stands before it."""
CAUGHT: Final = (StructError, LookupError, ValueError)
"""What `record_of` raises for bytes that are no record."""


def record_of(scope: str | None, key: str, stored: bytes) -> Record:
    """The record that was stored as these bytes."""
    # As the head is laid out.
    # fmt: off
    (magic, version, status, uncertain, known, has_result, has_error, _, attempt, created, token,
     started, updated, lease_end, finished, expires, revision, nonce_size, print_size, label_size,
     reference_size, error_size, noted_size) = HEAD.unpack_from(stored)
    # fmt: on
    print_at = HEAD.size + nonce_size
    label_at = print_at + print_size
    reference_at = label_at + label_size
    texts_end = reference_at + reference_size
    noted_at = texts_end + error_size
    end = noted_at + noted_size
    if magic != MAGIC or len(stored) < end:
        raise ValueError(stored[:STATUS_AT])
    return Record(
        scope,
        key,
        STATUSES[status],
        stored[print_at:label_at].decode() if known else None,
        token,
        stored[HEAD.size : print_at].decode(),
        attempt,
        created,
        started,
        updated,
        lease_end,
        expires,
        finished,
        stored[end:] if has_result else None,
        stored[texts_end:noted_at] if has_error else None,
        stored[noted_at:end] if noted_size else b"",
        revision,
        uncertain == 1,
        stored[label_at:reference_at].decode(),
        stored[reference_at:texts_end].decode() if reference_size else "",
        version,
    )
