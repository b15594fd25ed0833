"""The statements of the MySQL store: one CALL for each verb.

Values are written as hexadecimal literals, which mean the same bytes in every character set and
under every `sql_mode`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from oncekey.core.record import Record
from oncekey.core.requests import Claim, Forget, Note, Release, Renew, Resolve, Scan, Settle
from oncekey.stores.activity import Counts

Value = str | bytes | int | bool | None

LARGEST: Final = 2**63 - 1
ACTIVITY: Final = "CALL oncekey_activity_v1()"


def literal(value: Value) -> str:
    """Return the value as SQL. Numbers that no column holds become the largest one."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(min(int(value), LARGEST))
    return f"x'{(value.encode() if isinstance(value, str) else value).hex()}'"


def _call(procedure: str, *values: Value) -> str:
    return f"CALL oncekey_{procedure}_v1({','.join(map(literal, values))})"


def claim(ask: Claim) -> str:
    """Return the statement for a claim."""
    return _call(
        "claim",
        ask.scope or "",
        ask.key,
        ask.nonce,
        ask.fingerprint,
        ask.lease,
        ask.ttl,
        ask.on_expired == "hold",
        ask.max_attempts,
        ask.label,
        ask.reference,
    )


def claims(asks: list[Claim]) -> str:
    """Return the statement for a batch of claims. What a new record does not have is left out."""
    rows = ",".join(
        [
            f"[{_many(ask.scope)},{_one(ask.key)},{_one(ask.nonce)},{_one(ask.fingerprint)},"
            f"{_number(ask.lease)},{_number(ask.ttl)},{_many(ask.label)},{_many(ask.reference)}]"
            for ask in asks
        ]
    )
    shortest = _number(min([ask.lease for ask in asks]))
    return f"CALL oncekey_claims_v1('[{rows}]',{len(asks)},{shortest})"


# Batches are arrays of arrays in JSON, with nothing in them that would have to be escaped.


def _one(text: str | None) -> str:
    return "null" if text is None else f'"{text.encode().hex()}"'


@lru_cache(256)
def _many(text: str | None) -> str:
    """Return the same for a text that stands in many requests."""
    return _one(text or "")


def _blob(data: bytes | None) -> str:
    return "null" if data is None else f'"{data.hex()}"'


def _number(number: int) -> str:
    return str(min(number, LARGEST))


def _owned(ask: Renew | Note | Settle | Release) -> tuple[Value, ...]:
    return ask.scope or "", ask.key, ask.token, ask.nonce


def renew(ask: Renew) -> str:
    """Return the statement for a renewal."""
    return _call("renew", *_owned(ask), ask.lease, ask.ttl)


def note(ask: Note) -> str:
    """Return the statement for notes."""
    return _call("note", *_owned(ask), ask.noted, ask.revision)


def settle(ask: Settle) -> str:
    """Return the statement for a settle."""
    return _call("settle", *_owned(ask), ask.status, ask.result, ask.error, ask.ttl)


def settles(asks: list[Settle]) -> str:
    """Return the statement for a batch of settles."""
    rows = ",".join(
        [
            f"[{_many(ask.scope)},{_one(ask.key)},{ask.token},{_one(ask.nonce)},"
            f"{_many(ask.status)},{_blob(ask.result)},{_blob(ask.error)},{_number(ask.ttl)}]"
            for ask in asks
        ]
    )
    return f"CALL oncekey_settles_v1('[{rows}]',{len(asks)})"


def settle_without(ask: Settle) -> str:
    """Return the statement for a settle that does not keep the result."""
    return settle(replace(ask, result=None))


def release(ask: Release) -> str:
    """Return the statement for a release."""
    ways = (ask.uncertain, ask.hold, bool(ask.unused), ask.counted)
    return _call("release", *_owned(ask), ask.error, *ways, ask.bare_ttl, ask.ttl)


def resolve(ask: Resolve) -> str:
    """Return the statement that ends a held record."""
    ends = (ask.status, ask.result, ask.error, ask.ttl, ask.audit)
    return _call("resolve", ask.scope or "", ask.key, ask.token, *ends)


def forget(ask: Forget) -> str:
    """Return the statement that removes a record."""
    return _call("forget", ask.scope or "", ask.key, ask.token, ask.force, ask.audit)


def get(scope: str | None, key: str) -> str:
    """Return the statement that reads a record."""
    return _call("get", scope or "", key)


def scan(ask: Scan) -> str:
    """Return the statement for a page, with one row more, which shows whether there is another."""
    after = ask.after or ("", "")
    return _call(
        "scan", *after, ask.any_scope, ask.scope or "", ask.status, min(ask.limit, LARGEST - 1) + 1
    )


def purge(grace: int, limit: int) -> str:
    """Return the statement that removes what expired."""
    return _call("purge", grace, limit)


def restore(record: Record) -> str:
    """Return the statement that keeps a record of another store."""
    return _call(
        "restore",
        record.scope or "",
        record.key,
        record.status,
        record.fingerprint,
        record.token,
        record.nonce,
        record.attempt,
        record.lease_end,
        record.result,
        record.error,
        record.noted,
        record.revision,
        record.uncertain,
        record.label,
        record.reference,
        record.created,
        record.started,
        record.updated,
        record.finished,
        record.expires,
        record.hand,
    )


def audit(entry: bytes) -> str:
    """Return the statement that adds an entry to the audit trail."""
    return _call("audit", entry)


def audited(limit: int) -> str:
    """Return the statement that reads the newest entries of the audit trail."""
    return _call("audited", limit)


def add_activity(counts: Counts, ago: int) -> str:
    """Return the statement that adds to the sums of a moment."""
    return _call("add_activity", ago, *counts)
