"""Conversion of `processed_messages` rows to records, and of requests to parameters.

A row that failed and may be processed again is a released record. A row that is dead is a failed
record, and duplicates get its failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import json

from oncekey.core.codec import error_words
from oncekey.core.machine import DAY
from oncekey.core.record import Record, Status
from oncekey.core.requests import Claim, Owned, Release, Renew, Settle
from oncekey.messages.statements import LAPSED, Dialect, Values, as_micros

Row = Sequence[Any]

LONGEST_ID: Final = 256
LONGEST_TYPE: Final = 100


def new(token: int, values: Values) -> Row:
    """Return the row of a new message, as `granted` reads it."""
    return token, 1, token, token, None, values["fingerprint"], None


def granted(row: Row, ask: Claim, lives: int) -> Record:
    """Return the record of a claim that was granted."""
    token, attempt, started, created, error, fingerprint, _ = row
    now = as_micros(started)
    return Record(
        scope=ask.scope,
        key=ask.key,
        status="running",
        fingerprint=text(fingerprint),
        token=token,
        nonce=ask.nonce,
        attempt=attempt,
        lease_end=now + ask.lease,
        error=_bytes(error),
        uncertain=text(row[6]) == LAPSED,
        label=ask.label,
        reference=ask.reference,
        created=as_micros(created),
        started=now,
        updated=now,
        expires=now + lives,
    )


def read(row: Row, scope: str | None, key: str) -> tuple[str, int, Record | None]:
    """Return the identity of the database, its time, and the record or None."""
    identity, now, status, dead, fingerprint, token, nonce, attempt, lease_end = row[:9]
    result, error, _, label, reference, created, started, updated, finished, expires = row[9:]
    identity = text(identity)
    if status is None:
        return identity, as_micros(now), None
    return (
        identity,
        as_micros(now),
        Record(
            scope=scope,
            key=key,
            status=_status(text(status), dead=bool(dead)),
            fingerprint=text(fingerprint),
            token=token,
            nonce=text(nonce),
            attempt=attempt,
            lease_end=as_micros(lease_end),
            result=_bytes(result),
            error=_bytes(error),
            uncertain=text(row[11]) == LAPSED,
            label=text(label),
            reference=text(reference),
            created=as_micros(created),
            started=as_micros(started),
            updated=as_micros(updated),
            finished=as_micros(finished),
            expires=as_micros(expires),
        ),
    )


def _status(status: str, *, dead: bool) -> Status:
    if status == "processing":
        return "running"
    if status == "completed":
        return "completed"
    return "failed" if dead else "released"


def text(value: Any) -> Any:
    """Return the text or None. MySQL gives bytes, which no character set of a session changes."""
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def living(lease: int, ttl: int) -> int:
    """Return how long a row that is being processed lives without renewal."""
    return lease + max(ttl, DAY)


def of_claim(dialect: Dialect, ask: Claim, identity: str, lives: int) -> Values:
    """Return the parameters of a claim. Its row lives for `lives` unless renewed or settled."""
    return dialect.values(
        {"lease": ask.lease, "living": lives},
        consumer=ask.scope or "",
        key=ask.key,
        message_id=ask.reference,
        message_type=ask.label,
        nonce=ask.nonce,
        fingerprint=ask.fingerprint,
        identity=identity,
    )


def of_claims(dialect: Dialect, asks: Sequence[Claim], identity: str) -> Values:
    """Return the parameters of the claims of a batch, which have one consumer and one ttl."""
    batch = [
        {
            "key": ask.key,
            "message_id": ask.reference,
            "message_type": ask.label,
            "nonce": ask.nonce,
            "fingerprint": ask.fingerprint,
        }
        for ask in asks
    ]
    return dialect.values(
        {"lease": asks[0].lease, "living": asks[0].ttl},
        consumer=asks[0].scope or "",
        batch=json.encode(batch).decode(),
        identity=identity,
    )


def of_settles(dialect: Dialect, asks: Sequence[Settle], identity: str) -> Values:
    """Return the parameters of the completions of a batch. JSON has no bytes: they are hex."""
    batch = []
    for ask in asks:
        error = _error(ask.error)
        batch.append(
            {
                "key": ask.key,
                "token": ask.token,
                "nonce": ask.nonce,
                "status": ask.status,
                "result": None if ask.result is None else ask.result.hex(),
                "error": error["error"],
                "error_bytes": None if ask.error is None else ask.error.hex(),
            }
        )
    return dialect.values(
        {"ttl": asks[0].ttl, "some": asks[0].ttl - asks[0].ttl // 100},
        consumer=asks[0].scope or "",
        batch=json.encode(batch).decode(),
        identity=identity,
    )


def of_place(dialect: Dialect, scope: str | None, key: str) -> Values:
    """Return the parameters of statements that read one row."""
    return dialect.values({}, consumer=scope or "", key=key)


def of_settle(dialect: Dialect, ask: Settle, identity: str) -> Values:
    """Return the parameters of a completion or of a failure for good."""
    return dialect.values(
        {"ttl": ask.ttl, "some": ask.ttl - ask.ttl // 100},
        status=ask.status,
        result=ask.result,
        identity=identity,
        **_owned(ask),
        **_error(ask.error),
    )


def of_release(dialect: Dialect, ask: Release) -> Values:
    """Return the parameters of a release."""
    return dialect.values(
        {"ttl": ask.ttl}, unused=int(ask.unused), **_owned(ask), **_error(ask.error)
    )


def of_renew(dialect: Dialect, ask: Renew) -> Values:
    """Return the parameters of a renewal."""
    return dialect.values({"lease": ask.lease, "living": living(ask.lease, ask.ttl)}, **_owned(ask))


def of_count(
    dialect: Dialect,
    ask: Claim,
    identity: str,
    *,
    attempt: int,
    error: bytes,
    dead: bool,
    letter: bytes | None,
) -> Values:
    """Return the parameters that count an attempt after it was rolled back."""
    return {
        **of_claim(dialect, ask, identity, ask.ttl),
        **dialect.values(
            {"ttl": ask.ttl}, attempt=attempt, dead=dead, letter=letter, **_error(error)
        ),
    }


def _owned(ask: Owned) -> Values:
    return {"consumer": ask.scope or "", "key": ask.key, "token": ask.token, "nonce": ask.nonce}


def _error(error: bytes | None) -> Values:
    """Return the error as readable text, and as the original bytes."""
    if error is None:
        return {"error": None, "error_bytes": None}
    words = error_words(error) or error.decode("utf-8", "replace")
    plain = words.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return {"error": plain, "error_bytes": error}
