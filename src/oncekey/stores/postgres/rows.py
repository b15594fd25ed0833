"""Decode the results of the PostgreSQL store from the binary format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, cast

from oncekey.core import machine
from oncekey.core.record import FORMAT, Record, Status
from oncekey.core.requests import (
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
from oncekey.errors import UnreadableError
from oncekey.stores.activity import Activity, activity_of

_ANSWERS: Final[dict[bytes, type[Answer]]] = {
    b"granted": Granted,
    b"busy": Busy,
    b"replay": Replay,
    b"mismatch": Mismatch,
    b"held": Held,
    b"spent": Spent,
}
_VERDICTS: Final = {verdict.value.encode(): verdict for verdict in Verdict}

_MOMENT: Final = 8
"""The size of a time in bytes."""


def to_number(data: bytes) -> int:
    """Decode a bigint."""
    return int.from_bytes(data, signed=True)


def to_answer(data: bytes, ask: Claim) -> Answer:
    """Return the answer to a claim. If the record is new, the row is only the time."""
    if len(data) == _MOMENT:
        return machine.claim(None, ask, to_number(data))[1]
    told, moment, found = fields(data, 3)
    now = to_number(moment or b"")
    if found is None:  # the old record was gone, and this is a new one
        return machine.claim(None, ask, now)[1]
    record = to_record(found)
    return _ANSWERS[told or b""](record, now)


def to_verdict(data: bytes, scope: str | None, key: str) -> Verdict:
    """Return the answer to a write. Raise UnreadableError if a newer release wrote the record."""
    verdict = _VERDICTS.get(data)
    if verdict is None:
        raise _newer(scope, key)
    return verdict


def to_page(rows: Sequence[bytes], limit: int) -> Page:
    """Return the page, with a cursor if there are more records than the limit."""
    records = [to_record(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(records, (records[-1].scope or "", records[-1].key) if more else None)


def to_record(data: bytes) -> Record:
    """Return the record of a row. Raise UnreadableError if a newer release wrote it."""
    record = as_written(data)
    if record.version > FORMAT:
        raise _newer(record.scope, record.key)
    return record


def as_written(data: bytes) -> Record:
    """Return the record of a row, also if a newer release wrote it.

    The columns have the order of the table. Adjacent ones of fixed size that are never null are
    decoded together.
    """
    (scope, key, status, fingerprint), end = _some(data, _FIRST, 4)
    (token,) = _TOKEN.unpack_from(data, end)
    (nonce,), end = _some(data, end + _TOKEN.size, 1)
    attempt, lease_end = _ATTEMPT.unpack_from(data, end)
    (result, error, noted), end = _some(data, end + _ATTEMPT.size, 3)
    revision, uncertain = _REVISION.unpack_from(data, end)
    (label, reference), end = _some(data, end + _REVISION.size, 2)
    created, started, updated, finished, expires, version = _TIMES.unpack_from(data, end)
    (hand,), _ = _some(data, end + _TIMES.size + _BESIDE, 1)
    return Record(
        _text(scope) or None,
        _text(key),
        cast("Status", _text(status)),
        None if fingerprint is None else fingerprint.decode(),
        token,
        _text(nonce),
        attempt,
        created,
        started,
        updated,
        lease_end,
        expires,
        finished,
        result=result,
        error=error,
        noted=noted or b"",
        revision=revision,
        uncertain=uncertain,
        label=_text(label),
        reference=_text(reference),
        version=version,
        hand=hand or b"",
    )


def to_entries(rows: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the times and the entries of the audit trail."""
    found = (fields(row, 2) for row in rows)
    return [(to_number(at or b""), entry or b"") for at, entry in found]


def to_activity(rows: list[bytes]) -> Activity:
    """Return the sums for the charts. Every row has the time; one without sums has nothing else."""
    found = [fields(row, 7) for row in rows]
    now = to_number(found[0][0] or b"")
    numbers = (tuple(to_number(one or b"") for one in row[1:]) for row in found if row[1])
    return activity_of(cast("Iterable[tuple[int, int, int, int, int, int]]", numbers), now)


_FIRST: Final = 4
"""The position of the first field, after the number of fields."""
_FIELD: Final = Struct(">4xi")
"""The header of a field: its type, which is skipped, and its length, which is -1 for null."""
_TOKEN: Final = Struct(">8xq")
_ATTEMPT: Final = Struct(">8xq8xq")
_REVISION: Final = Struct(">8xq8x?")
_TIMES: Final = Struct(">8xq8xq8xq8xq8xq8xi")
_BESIDE: Final = 32
"""The size of `due` and `waited`, which are not part of the record."""


def fields(data: bytes, count: int) -> list[bytes | None]:
    """Return the first fields of a row, which may have more of them in a newer schema."""
    return _some(data, _FIRST, count)[0]


def _some(data: bytes, end: int, count: int) -> tuple[list[bytes | None], int]:
    """Return `count` fields from here on, and the position of the next one."""
    found: list[bytes | None] = []
    for _ in range(count):
        start = end + _FIELD.size
        (length,) = _FIELD.unpack_from(data, end)
        end = start + max(length, 0)
        found.append(None if length < 0 else data[start:end])
    return found, end


def _text(data: bytes | None) -> str:
    return (data or b"").decode()


def _newer(scope: str | None, key: str) -> UnreadableError:
    msg = (
        f"the record of {key!r} was written by a newer release (this one reads up to format "
        f"{FORMAT}); upgrade oncekey here as well"
    )
    return UnreadableError(msg, key=key, scope=scope)
