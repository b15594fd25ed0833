"""What the scripts are told and what they answer, as bytes of the wire. No I/O, no driver.

A script gets the request's fields as arguments in the order that its first line names. A record
comes back as its packed fields and its three byte strings; `lua/record.lua` describes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from msgspec.msgpack import decode

from oncekey.errors import UnreadableError
from oncekey.key import stored_key
from oncekey.record import FORMAT, Record, Status
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

Argument = bytes | int
Place = tuple[str, str]

_STATUSES: Final[tuple[Status, ...]] = ("running", "completed", "failed", "released", "held")
_CODES: Final = {status: code for code, status in enumerate(_STATUSES)}
_DAMAGED: Final = -2
_VERDICTS: Final = {1: Verdict.DONE, 2: Verdict.ENDED, 3: Verdict.LOST}
_ANSWERS: Final[dict[int, type[Answer]]] = {
    1: Granted,
    2: Busy,
    3: Replay,
    4: Mismatch,
    5: Held,
    6: Spent,
}


def name_of(prefix: bytes, scope: str | None, key: str) -> bytes:
    """The Redis key of a record."""
    return prefix + stored_key(scope, key).encode()


def channel_of(name: bytes) -> bytes:
    """Where the end of its running attempt is told; `lua/wake.lua` builds the same."""
    return name + b":ended"


def place_of(prefix: bytes, name: bytes) -> Place | None:
    """Scope and key of a Redis key; None for one that is not ours."""
    try:
        stored = name.removeprefix(prefix).decode("ascii")
    except UnicodeDecodeError:
        return None
    scope, slash, key = stored.rpartition("/")
    if not key or (slash and not scope) or "/" in scope:
        return None
    place = unquote(scope), unquote(key)
    return place if stored_key(place[0] or None, place[1]) == stored else None


def pattern_of(prefix: bytes) -> bytes:
    """What SCAN has to match to find every record."""
    special = b"\\*?[]^"
    return b"".join(b"\\%c" % one if one in special else b"%c" % one for one in prefix) + b"*"


# What is sent


def claim(ask: Claim) -> tuple[Argument, ...]:
    """The arguments of claim.lua."""
    return (
        ask.nonce.encode(),
        *_maybe(None if ask.fingerprint is None else ask.fingerprint.encode()),
        ask.lease,
        ask.ttl,
        int(ask.on_expired == "hold"),
        b"" if ask.max_attempts is None else ask.max_attempts,
        ask.label.encode(),
        ask.reference.encode(),
    )


def renew(ask: Renew) -> tuple[Argument, ...]:
    """The arguments of renew.lua."""
    return ask.token, ask.nonce.encode(), ask.lease, ask.ttl


def note(ask: Note) -> tuple[Argument, ...]:
    """The arguments of note.lua. Whatever is below the first revision is as old as none."""
    return ask.token, ask.nonce.encode(), max(ask.revision, 0), ask.noted


def settle(ask: Settle) -> tuple[Argument, ...]:
    """The arguments of settle.lua."""
    status = _CODES[ask.status]
    return (
        ask.token,
        ask.nonce.encode(),
        status,
        ask.ttl,
        *_maybe(ask.result),
        *_maybe(ask.error),
    )


def release(ask: Release) -> tuple[Argument, ...]:
    """The arguments of release.lua."""
    return (
        ask.token,
        ask.nonce.encode(),
        *_maybe(ask.error),
        int(ask.uncertain),
        int(ask.hold),
        int(ask.unused),
        ask.lease,
        ask.ttl,
    )


def resolve(ask: Resolve) -> tuple[Argument, ...]:
    """The arguments of resolve.lua."""
    return ask.token, _CODES[ask.status], ask.ttl, *_maybe(ask.result), *_maybe(ask.error)


def forget(ask: Forget) -> tuple[Argument, ...]:
    """The arguments of forget.lua."""
    return ask.token, int(ask.force)


def give_back(ask: Claim, record: Record) -> Release:
    """The release of a claim that nobody has used."""
    return Release(
        ask.scope,
        ask.key,
        token=record.token,
        nonce=ask.nonce,
        error=None,
        uncertain=False,
        hold=False,
        unused=True,
        lease=ask.lease,
        ttl=ask.ttl,
    )


def _maybe(value: bytes | None) -> tuple[Argument, Argument]:
    return (0, b"") if value is None else (1, value)


# What comes back


def answer(ask: Claim, reply: Any) -> Answer:  # noqa: ANN401 - as the driver parsed it
    """What a claim is told."""
    record = _record(ask.scope, ask.key, reply)
    return _ANSWERS[reply[0]](record, reply[1])


def verdict(scope: str | None, key: str, reply: Any) -> Verdict:  # noqa: ANN401 - the same
    """What a write is told."""
    if isinstance(reply, list):
        raise _unreadable(scope, key, reply)
    return _VERDICTS[reply]


def running(scope: str | None, key: str, reply: Any) -> bool:  # noqa: ANN401 - the same
    """Whether the attempt that is watched still runs."""
    if isinstance(reply, list):
        raise _unreadable(scope, key, reply)
    return bool(reply)


def found(scope: str | None, key: str, reply: Any) -> Record | None:  # noqa: ANN401 - the same
    """The living record, if there is one."""
    return None if reply is None else _record(scope, key, reply)


def _record(scope: str | None, key: str, reply: Any) -> Record:  # noqa: ANN401 - the same
    if reply[0] < 0:
        raise _unreadable(scope, key, reply)
    try:
        return _unpacked(scope, key, decode(reply[2]), reply)
    except (LookupError, TypeError, ValueError, RecursionError):
        raise _unreadable(scope, key, (_DAMAGED,)) from None


def _unpacked(scope: str | None, key: str, packed: Any, reply: Any) -> Record:  # noqa: ANN401 - the same
    created = packed[6]
    return Record(
        scope=scope,
        key=key,
        status=_STATUSES[packed[1]],
        fingerprint=None if packed[2] is False else packed[2],
        token=created + packed[5],
        nonce=packed[3],
        attempt=packed[4],
        lease_end=created + packed[9],
        result=reply[3],
        error=reply[4],
        noted=reply[5] or b"",
        revision=int(packed[12]),
        uncertain=packed[13],
        label=packed[14],
        reference=packed[15],
        created=created,
        started=created + packed[7],
        updated=created + packed[8],
        finished=0 if packed[10] is False else created + packed[10],
        expires=0 if packed[11] is False else created + packed[11],
        version=packed[0],
    )


def _unreadable(scope: str | None, key: str, reply: Any) -> UnreadableError:  # noqa: ANN401 - the same
    if reply[0] == _DAMAGED:
        msg = (
            f"what is stored for {key!r} is not what oncekey writes, or was damaged; look at it in "
            f"Redis, and delete it there to let the next call run"
        )
    else:
        msg = (
            f"the record of {key!r} was written by a newer release (format {reply[1]}, this one "
            f"reads up to {FORMAT}); upgrade oncekey here as well"
        )
    return UnreadableError(msg, key=key, scope=scope)


# Pages


def places(prefix: bytes, names: Iterable[bytes], ask: Scan) -> list[Place]:
    """Where to look for the records that a scan may tell, in its order and each once."""
    here = {place_of(prefix, name) for name in names}
    return sorted(
        place
        for place in here
        if place is not None
        and (ask.any_scope or place[0] == (ask.scope or ""))
        and (ask.after is None or place > ask.after)
    )


def page(records: list[Record], ask: Scan) -> Page:
    """As many as were asked for, and whether there are more."""
    told = records[: ask.limit]
    if len(records) == len(told):
        return Page(told, None)
    return Page(told, (told[-1].scope or "", told[-1].key))
