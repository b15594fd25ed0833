"""The statements of the PostgreSQL store, what goes into them and what comes out of them.

One statement for each verb. Those that decide something call a function that a migration made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from psycopg.types.numeric import Int8

from oncekey.errors import UnreadableError
from oncekey.record import FORMAT, Record
from oncekey.verbs import (
    Answer,
    Busy,
    Claim,
    Forget,
    Granted,
    Held,
    Mismatch,
    Note,
    Page,
    Release,
    Renew,
    Replay,
    Resolve,
    Scan,
    Settle,
    Spent,
    Verdict,
)

Values = tuple[object, ...]
Row = tuple[Any, ...]

# Columns by name: a newer schema may have more of them.
_COLUMNS: Final = (
    "scope", "key", "status", "fingerprint", "token", "nonce", "attempt", "lease_end", "result",
    "error", "noted", "revision", "uncertain", "label", "reference", "created", "started",
    "updated", "finished", "expires", "version",
)  # fmt: skip
_VERSION: Final = _COLUMNS.index("version")
_LIVING: Final = "(expires = 0 OR expires > (SELECT oncekey_now_v1()))"
_LIST: Final = ", ".join(_COLUMNS)


def _call(function: LiteralString, count: int) -> LiteralString:
    marks: LiteralString = ", %s" * (count - 1)
    return f"{function}(%s{marks})"


CLAIM: Final = (
    f"SELECT c.answer, c.moment, {', '.join(f'(c.r).{column}' for column in _COLUMNS)} "  # noqa: S608 - only constants
    f"FROM {_call('oncekey_claim_v1', 10)} c"
)
RENEW: Final = f"SELECT {_call('oncekey_renew_v1', 6)}"
NOTE: Final = f"SELECT {_call('oncekey_note_v1', 6)}"
SETTLE: Final = f"SELECT {_call('oncekey_settle_v1', 8)}"
RELEASE: Final = f"SELECT {_call('oncekey_release_v1', 10)}"
RESOLVE: Final = f"SELECT {_call('oncekey_resolve_v1', 7)}"
FORGET: Final = f"SELECT {_call('oncekey_forget_v1', 4)}"
PURGE: Final = f"SELECT {_call('oncekey_purge_v1', 2)}"
GET: Final = f"SELECT {_LIST} FROM oncekey_records WHERE scope = %s AND key = %s AND {_LIVING}"  # noqa: S608 - only constants
SCAN: Final = (
    f"SELECT {_LIST} FROM oncekey_records WHERE (scope, key) > (%s, %s) AND {_LIVING} "  # noqa: S608 - only constants
    "AND (%s OR scope = %s) AND (%s::text IS NULL OR status = %s) ORDER BY scope, key LIMIT %s"
)

_ANSWERS: Final[dict[str, type[Answer]]] = {
    "granted": Granted,
    "busy": Busy,
    "replay": Replay,
    "mismatch": Mismatch,
    "held": Held,
    "spent": Spent,
}


# Numbers go as bigint whatever their size, so that a statement is prepared once.


def of_claim(ask: Claim) -> Values:
    """What CLAIM asks for."""
    most = ask.max_attempts
    return (
        ask.scope or "",
        ask.key,
        ask.nonce,
        ask.fingerprint,
        Int8(ask.lease),
        Int8(ask.ttl),
        ask.on_expired == "hold",
        None if most is None else Int8(most),
        ask.label,
        ask.reference,
    )


def _of_owned(ask: Renew | Note | Settle | Release) -> Values:
    return ask.scope or "", ask.key, Int8(ask.token), ask.nonce


def of_renew(ask: Renew) -> Values:
    """What RENEW asks for."""
    return (*_of_owned(ask), Int8(ask.lease), Int8(ask.ttl))


def of_note(ask: Note) -> Values:
    """What NOTE asks for."""
    return (*_of_owned(ask), ask.noted, Int8(ask.revision))


def of_settle(ask: Settle) -> Values:
    """What SETTLE asks for."""
    return (*_of_owned(ask), ask.status, ask.result, ask.error, Int8(ask.ttl))


def of_release(ask: Release) -> Values:
    """What RELEASE asks for."""
    ends = (ask.error, ask.uncertain, ask.hold, ask.unused, Int8(ask.lease), Int8(ask.ttl))
    return (*_of_owned(ask), *ends)


def of_resolve(ask: Resolve) -> Values:
    """What RESOLVE asks for."""
    place = (ask.scope or "", ask.key, Int8(ask.token))
    return (*place, ask.status, ask.result, ask.error, Int8(ask.ttl))


def of_forget(ask: Forget) -> Values:
    """What FORGET asks for."""
    return ask.scope or "", ask.key, Int8(ask.token), ask.force


def of_purge(grace: int, limit: int) -> Values:
    """What PURGE asks for."""
    return Int8(grace), Int8(limit)


def of_scan(ask: Scan) -> Values:
    """What SCAN asks for; one row more than the page has, to see whether there is another."""
    where = (ask.any_scope, ask.scope or "", ask.status, ask.status)
    return (*(ask.after or ("", "")), *where, Int8(ask.limit + 1))


# What comes back


def to_answer(row: Row) -> Answer:
    """What a claim was told."""
    record = to_record(row[2:])
    return _ANSWERS[row[0]](record, row[1])


def to_verdict(row: Row, scope: str | None, key: str) -> Verdict:
    """What a write was told; refused when a newer release wrote the record."""
    if row[0] == "newer":
        raise _newer(scope, key)
    return Verdict(row[0])


def to_page(rows: Sequence[Row], limit: int) -> Page:
    """The records of a page, and where the next one starts."""
    more = len(rows) > limit
    after = (rows[limit - 1][0], rows[limit - 1][1]) if more else None
    return Page([to_record(row) for row in rows[:limit]], after)


def to_record(row: Row) -> Record:
    """The record in a row; refused when a newer release wrote it."""
    if row[_VERSION] > FORMAT:
        raise _newer(row[0] or None, row[1])
    facts = dict(zip(_COLUMNS, row, strict=True))
    facts["scope"] = facts["scope"] or None
    return Record(**facts)


def _newer(scope: str | None, key: str) -> UnreadableError:
    msg = (
        f"the record of {key!r} was written by a newer release (this one reads up to format "
        f"{FORMAT}); upgrade oncekey here as well"
    )
    return UnreadableError(msg, key=key, scope=scope)
