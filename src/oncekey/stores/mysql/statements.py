"""The statements of the MySQL store: one CALL for each verb.

Values are written as hexadecimal literals, which mean the same bytes in every character set and
under every `sql_mode`.
"""

from __future__ import annotations

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
