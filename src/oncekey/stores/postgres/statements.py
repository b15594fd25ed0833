"""The SQL statements of the PostgreSQL store, and their parameters.

There is one statement for each verb. Those that decide something call a function that a migration
has created. All values are in PostgreSQL's binary format, and each result has one column.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from oncekey.core.record import Record
from oncekey.core.requests import Claim, Forget, Note, Release, Renew, Resolve, Scan, Settle
from oncekey.stores.activity import Counts
from oncekey.stores.postgres.protocol import Statement, Values

_LARGEST: Final = 2**63 - 1


def statement(text: str, count: int) -> Statement:
    """Return the statement, which has `count` parameters."""
    name = f"oncekey_{sha256(text.encode()).hexdigest()[:16]}"
    return Statement(name.encode(), text.encode(), [1] * count)


def _call(function: str, types: str) -> Statement:
    kinds = types.split()
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(kinds, 1))
    return statement(f"SELECT {function}({values})", len(kinds))._replace(kinds=tuple(kinds))


def _together(function: str, alone: Statement) -> Statement:
    """Return the variant for a batch: its function takes an array for each parameter."""
    return _call(function, " ".join(f"{kind}[]" for kind in alone.kinds))._replace(
        kinds=alone.kinds
    )


_CLAIM: Final = "text text text text bigint bigint boolean bigint text text"
_SETTLE: Final = "text text bigint text text bytea bytea bigint"
CLAIM: Final = _call("oncekey_claim_v1", _CLAIM)._replace(
    bound=_call("oncekey_claim_bound_v1", _CLAIM)
)
RENEW: Final = _call("oncekey_renew_v1", "text text bigint text bigint bigint")
NOTE: Final = _call("oncekey_note_v1", "text text bigint text bytea bigint")
SETTLE: Final = _call("oncekey_settle_v1", _SETTLE)._replace(
    bound=_call("oncekey_settle_bound_v1", _SETTLE)
)
RELEASE: Final = _call(
    "oncekey_release_v1",
    "text text bigint text bytea boolean boolean boolean boolean bigint bigint",
)
RESOLVE: Final = _call("oncekey_resolve_v1", "text text bigint text bytea bytea bigint bytea")
FORGET: Final = _call("oncekey_forget_v1", "text text bigint boolean bytea")
RESTORE: Final = _call(
    "oncekey_restore_v1",
    "text text text text bigint text bigint bigint bytea bytea bytea bigint boolean text text "
    "bigint bigint bigint bigint bigint bytea",
)
AUDIT: Final = _call("oncekey_audit_v1", "bytea")
AUDITED: Final = statement(
    "SELECT ROW(a.at, a.entry) FROM oncekey_audit a ORDER BY a.id DESC LIMIT $1::bigint", 1
)
ADD_ACTIVITY: Final = _call("oncekey_add_activity_v1", "bigint bigint bigint bigint bigint")
ACTIVITY: Final = statement(
    "SELECT ROW(oncekey_now_v1(), a.width, a.at, a.new, a.duplicates, a.held, a.errors) "
    "FROM (VALUES (1)) AS one LEFT JOIN oncekey_activity a ON true",
    0,
)
CROWDS: Final = (
    (CLAIM, _together("oncekey_claims_v1", CLAIM)),
    (SETTLE, _together("oncekey_settles_v1", SETTLE)),
)
"""The verbs that can share a statement, and the statement for a batch."""
WATCH: Final = _call("oncekey_watch_v1", "text text bigint")
PURGE: Final = _call("oncekey_purge_v1", "bigint bigint")
_LIVING: Final = "(t.expires = 0 OR t.expires > (SELECT oncekey_now_v1()))"
GET: Final = statement(
    f"SELECT t FROM oncekey_records t WHERE t.scope = $1 AND t.key = $2 AND {_LIVING}",  # noqa: S608 - only constants
    2,
)
SCAN: Final = statement(
    f"SELECT t FROM oncekey_records t WHERE (t.scope, t.key) > ($1, $2) AND {_LIVING} "  # noqa: S608 - only constants
    "AND ($3 OR t.scope = $4) AND ($5::text IS NULL OR t.status = $5) "
    "ORDER BY t.scope, t.key LIMIT $6::bigint",
    6,
)


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _number(value: int) -> bytes:
    return min(value, _LARGEST).to_bytes(8, signed=True)


def _truth(value: bool) -> bytes:  # noqa: FBT001 - it is a value, not an option
    return b"\x01" if value else b"\x00"


def _place(scope: str | None, key: str) -> tuple[bytes, bytes]:
    return (scope or "").encode(), key.encode()


def of_claim(ask: Claim) -> Values:
    """Return the parameters of CLAIM."""
    fingerprint, limit = ask.fingerprint, ask.max_attempts
    return (
        (ask.scope or "").encode(),
        ask.key.encode(),
        ask.nonce.encode(),
        None if fingerprint is None else fingerprint.encode(),
        _number(ask.lease),
        _number(ask.ttl),
        _truth(ask.on_expired == "hold"),
        None if limit is None else _number(limit),
        ask.label.encode(),
        ask.reference.encode(),
    )


def _of_owned(ask: Renew | Note | Settle | Release) -> Values:
    return (*_place(ask.scope, ask.key), _number(ask.token), ask.nonce.encode())


def of_renew(ask: Renew) -> Values:
    """Return the parameters of RENEW."""
    return (*_of_owned(ask), _number(ask.lease), _number(ask.ttl))


def of_note(ask: Note) -> Values:
    """Return the parameters of NOTE."""
    return (*_of_owned(ask), ask.noted, _number(ask.revision))


def of_settle(ask: Settle) -> Values:
    """Return the parameters of SETTLE."""
    return (
        (ask.scope or "").encode(),
        ask.key.encode(),
        _number(ask.token),
        ask.nonce.encode(),
        ask.status.encode(),
        ask.result,
        ask.error,
        _number(ask.ttl),
    )


def of_release(ask: Release) -> Values:
    """Return the parameters of RELEASE."""
    ways = map(_truth, (ask.uncertain, ask.hold, ask.unused, ask.counted))
    return (*_of_owned(ask), ask.error, *ways, _number(ask.bare_ttl), _number(ask.ttl))


def of_resolve(ask: Resolve) -> Values:
    """Return the parameters of RESOLVE."""
    ends = (ask.status.encode(), ask.result, ask.error, _number(ask.ttl))
    return (*_place(ask.scope, ask.key), _number(ask.token), *ends, ask.audit)


def of_forget(ask: Forget) -> Values:
    """Return the parameters of FORGET."""
    return (*_place(ask.scope, ask.key), _number(ask.token), _truth(ask.force), ask.audit)


def of_get(scope: str | None, key: str) -> Values:
    """Return the parameters of GET."""
    return _place(scope, key)


def of_watch(scope: str | None, key: str, token: int) -> Values:
    """Return the parameters of WATCH."""
    return (*_place(scope, key), _number(token))


def of_purge(grace: int, limit: int) -> Values:
    """Return the parameters of PURGE."""
    return _number(grace), _number(limit)


def of_restore(record: Record) -> Values:
    """Return the parameters of RESTORE."""
    return (
        *_place(record.scope, record.key),
        record.status.encode(),
        _text(record.fingerprint),
        _number(record.token),
        record.nonce.encode(),
        _number(record.attempt),
        _number(record.lease_end),
        record.result,
        record.error,
        record.noted,
        _number(record.revision),
        _truth(record.uncertain),
        record.label.encode(),
        record.reference.encode(),
        *map(_number, (record.created, record.started, record.updated)),
        *map(_number, (record.finished, record.expires)),
        record.hand,
    )


def of_audited(limit: int) -> Values:
    """Return the parameters of AUDITED."""
    return (_number(limit),)


def of_activity(counts: Counts, ago: int) -> Values:
    """Return the parameters of ADD_ACTIVITY."""
    return tuple(map(_number, (ago, *counts)))


def of_scan(ask: Scan) -> Values:
    """Return the parameters of SCAN. One row more than the page shows whether there is another."""
    after = _place(*(ask.after or (None, "")))
    where = (_truth(ask.any_scope), (ask.scope or "").encode(), _text(ask.status))
    return (*after, *where, _number(ask.limit + 1))


def channel(scope: str | None, key: str) -> str:
    """Return the channel on which a change of the record is notified, as `oncekey_wake_v1` does."""
    named = f"{scope or ''}\n{key}"
    return f"oncekey_{sha256(named.encode()).hexdigest()[:48]}"
