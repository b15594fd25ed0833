"""Decode the rows of the MySQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncekey.core import machine
from oncekey.core.record import FORMAT, Record
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

Row = tuple[Any, ...]

_ANSWERS: Final[dict[str, type[Answer]]] = {
    "granted": Granted,
    "busy": Busy,
    "replay": Replay,
    "mismatch": Mismatch,
    "held": Held,
    "spent": Spent,
}
_VERDICTS: Final = {verdict.value: verdict for verdict in Verdict}


def to_answer(row: Row, ask: Claim) -> Answer:
    """Return the answer to a claim. If the record is new, the row is only the time."""
    if len(row) == 1:
        return machine.claim(None, ask, row[0])[1]
    told, now, *found = row
    record = to_record(found)
    return _ANSWERS[told](record, now)


def to_verdict(row: Row, scope: str | None, key: str) -> Verdict:
    """Return the answer to a write. Raise UnreadableError if a newer release wrote the record."""
    verdict = _VERDICTS.get(row[0])
    if verdict is None:
        raise _newer(scope, key)
    return verdict


def to_page(rows: Sequence[Row], limit: int) -> Page:
    """Return the page, with a cursor if there are more records than the limit."""
    records = [to_record(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(records, (records[-1].scope or "", records[-1].key) if more else None)


def to_record(row: Sequence[Any]) -> Record:
    """Return the record of a row. Raise UnreadableError if a newer release wrote it."""
    record = as_written(row)
    if record.version > FORMAT:
        raise _newer(record.scope, record.key)
    return record


def as_written(row: Sequence[Any]) -> Record:
    """Return the record of a row, also if a newer release wrote it."""
    scope, key, status, fingerprint, token, nonce, attempt, lease_end, *rest = row
    result, error, noted, revision, uncertain, label, reference, *times = rest
    created, started, updated, finished, expires, version, hand = times[:7]
    return Record(
        scope.decode() or None,
        key.decode(),
        status,
        None if fingerprint is None else fingerprint.decode(),
        token,
        nonce.decode(),
        attempt,
        created,
        started,
        updated,
        lease_end,
        expires,
        finished,
        result=result,
        error=error,
        noted=noted,
        revision=revision,
        uncertain=bool(uncertain),
        label=label.decode(),
        reference=reference.decode(),
        version=version,
        hand=hand,
    )


def to_activity(rows: Sequence[Row]) -> Activity:
    """Return the sums for the charts. Every row has the time; one without sums has nothing else."""
    return activity_of((row[1:] for row in rows if row[1] is not None), rows[0][0])


def _newer(scope: str | None, key: str) -> UnreadableError:
    msg = (
        f"the record of {key!r} was written by a newer release (this one reads up to format "
        f"{FORMAT}); upgrade oncekey here as well"
    )
    return UnreadableError(msg, key=key, scope=scope)
