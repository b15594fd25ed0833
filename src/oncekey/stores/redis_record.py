"""A record as Redis keeps it: one string, which `lua/record.lua` describes."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception like the others
from typing import Final

from oncekey.record import Record, Status

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
    label_at = nonce_size + print_size
    reference_at = label_at + label_size
    texts_end = HEAD.size + reference_at + reference_size
    noted_at = texts_end + error_size
    end = noted_at + noted_size
    if magic != MAGIC or len(stored) < end:
        raise ValueError(stored[:STATUS_AT])
    data = stored[HEAD.size : texts_end]
    text = data.decode()
    if len(text) == len(data):
        nonce, fingerprint = text[:nonce_size], text[nonce_size:label_at]
        label, reference = text[label_at:reference_at], text[reference_at:]
    else:
        nonce, fingerprint = data[:nonce_size].decode(), data[nonce_size:label_at].decode()
        label, reference = data[label_at:reference_at].decode(), data[reference_at:].decode()
    return Record(
        scope,
        key,
        STATUSES[status],
        fingerprint if known else None,
        token,
        nonce,
        attempt,
        created,
        started,
        updated,
        lease_end,
        expires,
        finished,
        stored[end:] if has_result else None,
        stored[texts_end:noted_at] if has_error else None,
        stored[noted_at:end],
        revision,
        uncertain == 1,
        label,
        reference,
        version,
    )
