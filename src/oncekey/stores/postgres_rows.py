"""What the statements of the PostgreSQL store answer, read from its binary form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from oncekey import machine
from oncekey.errors import UnreadableError
from oncekey.record import FORMAT, Record
from oncekey.verbs import (
    Answer,
    Busy,
    Claim,
    Granted,
    Held,
    Mismatch,
    Page,
    Replay,
    Spent,
    Verdict,
)

_ANSWERS: Final[dict[bytes, type[Answer]]] = {
    b"granted": Granted,
    b"busy": Busy,
    b"replay": Replay,
    b"mismatch": Mismatch,
    b"held": Held,
    b"spent": Spent,
}


_MOMENT: Final = 8
"""Bytes of a moment."""


def to_number(data: bytes) -> int:
    """A bigint."""
    return int.from_bytes(data, signed=True)


def to_answer(data: bytes, ask: Claim) -> Answer:
    """What a claim was told: the moment alone where the record is new."""
    if len(data) == _MOMENT:
        return machine.claim(None, ask, to_number(data))[1]
    told, moment, found = fields(data, 3)
    now = to_number(moment or b"")
    if found is None:  # the record that was there is gone, and this is a new one
        return machine.claim(None, ask, now)[1]
    record = to_record(found)
    return _ANSWERS[told or b""](record, now)


def to_verdict(data: bytes, scope: str | None, key: str) -> Verdict:
    """What a write was told; refused when a newer release wrote the record."""
    if data == b"newer":
        raise _newer(scope, key)
    return Verdict(data.decode())


def to_page(rows: Sequence[bytes], limit: int) -> Page:
    """The records of a page, and where the next one starts."""
    records = [to_record(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(records, (records[-1].scope or "", records[-1].key) if more else None)


def to_record(data: bytes) -> Record:
    """The record in a row; refused when a newer release wrote it."""
    record = as_written(data)
    if record.version > FORMAT:
        raise _newer(record.scope, record.key)
    return record


def as_written(data: bytes) -> Record:
    """The record in a row, also when a newer release wrote it and means more by it."""
    found = fields(data, len(_READERS))
    facts: dict[str, Any] = {
        name: None if field is None else read(field)
        for (name, read), field in zip(_READERS.items(), found, strict=True)
    }
    facts["scope"] = facts["scope"] or None
    return Record(**facts)


_FIELD: Final = Struct(">4xi")
"""Before each field of a row stand its type and its length; a null has the length -1."""


def fields(data: bytes, count: int) -> list[bytes | None]:
    """The first fields of a row: in a newer schema it may have more of them."""
    found: list[bytes | None] = []
    end = 4
    for _ in range(count):
        start = end + 8
        (length,) = _FIELD.unpack_from(data, end)
        end = start + max(length, 0)
        found.append(None if length < 0 else data[start:end])
    return found


_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "scope": bytes.decode,
    "key": bytes.decode,
    "status": bytes.decode,
    "fingerprint": bytes.decode,
    "token": to_number,
    "nonce": bytes.decode,
    "attempt": to_number,
    "lease_end": to_number,
    "result": bytes,
    "error": bytes,
    "noted": bytes,
    "revision": to_number,
    "uncertain": b"\x01".__eq__,
    "label": bytes.decode,
    "reference": bytes.decode,
    "created": to_number,
    "started": to_number,
    "updated": to_number,
    "finished": to_number,
    "expires": to_number,
    "version": to_number,
}
"""The columns in the order of the table, and how each is read."""


def _newer(scope: str | None, key: str) -> UnreadableError:
    msg = (
        f"the record of {key!r} was written by a newer release (this one reads up to format "
        f"{FORMAT}); upgrade oncekey here as well"
    )
    return UnreadableError(msg, key=key, scope=scope)
