"""The bytes that are exchanged with Redis: records, requests and scripts.

There is no I/O and no driver here. A record is one string, which `lua/record.lua` describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha1
from importlib import resources
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception like the others
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from oncekey.core import machine
from oncekey.core.audit import KEPT
from oncekey.core.key import stored_key
from oncekey.core.record import FORMAT, Record, Status
from oncekey.core.requests import (
    Answer,
    Busy,
    Claim,
    Forget,
    Granted,
    Held,
    Mismatch,
    Note,
    Owned,
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
from oncekey.errors import ConfigurationError, UnreadableError
from oncekey.stores.activity import RINGS, Activity, activity_of

MAGIC: Final = b"once"
"""The first bytes of a record. Other programs may keep strings under a key like ours."""
HEAD: Final = Struct(">4sBBBBBBBI8Q5H2I")
STATUSES: Final[tuple[Status, ...]] = ("running", "completed", "failed", "released", "held")
"""The statuses; the head of a record contains the index."""
STATUS_AT: Final = 5
"""The position of the status in the head. The version of the format is the byte before it."""
CAUGHT: Final = (StructError, LookupError, ValueError)
"""The errors that `record_of` raises for bytes that are not a record."""


def record_of(scope: str | None, key: str, stored: bytes, at: int = 0) -> Record:
    """Decode a record, stored from this place on. Raise one of CAUGHT if it is not a record."""
    # In the order of the head.
    # fmt: off
    (magic, version, status, uncertain, known, has_result, has_error, _, attempt, created, token,
     started, updated, lease_end, finished, expires, revision, nonce_size, print_size, label_size,
     reference_size, hand_size, error_size, noted_size) = HEAD.unpack_from(stored, at)
    # fmt: on
    nonce_at = at + HEAD.size
    print_at = nonce_at + nonce_size
    label_at = print_at + print_size
    reference_at = label_at + label_size
    hand_at = reference_at + reference_size
    texts_end = hand_at + hand_size
    noted_at = texts_end + error_size
    end = noted_at + noted_size
    if magic != MAGIC or len(stored) < end:
        raise ValueError(stored[at : at + STATUS_AT])
    return Record(
        scope,
        key,
        STATUSES[status],
        stored[print_at:label_at].decode() if known else None,
        token,
        stored[nonce_at:print_at].decode(),
        attempt,
        created,
        started,
        updated,
        lease_end,
        expires,
        finished,
        stored[end:] if has_result else None,
        stored[texts_end:noted_at] if has_error else None,
        stored[noted_at:end] if noted_size else b"",
        revision,
        uncertain == 1,
        stored[label_at:reference_at].decode(),
        stored[reference_at:hand_at].decode() if reference_size else "",
        version,
        stored[hand_at:texts_end] if hand_size else b"",
    )


def bytes_of(record: Record) -> bytes:
    """Return the bytes that the scripts would have stored for the record."""
    texts = [record.nonce, record.fingerprint or "", record.label, record.reference]
    parts = [text.encode() for text in texts] + [record.hand, record.error or b"", record.noted]
    times = (record.started, record.updated, record.lease_end, record.finished, record.expires)
    head = HEAD.pack(
        MAGIC,
        record.version,
        STATUSES.index(record.status),
        record.uncertain,
        record.fingerprint is not None,
        record.result is not None,
        record.error is not None,
        0,
        record.attempt,
        record.created,
        record.token,
        *times,
        record.revision,
        *map(len, parts),
    )
    return b"".join((head, *parts, record.result or b""))


# The arguments and the replies of the scripts, as bytes of the wire.
#
# A script gets the fields of the request packed into one argument, in the order that its first line
# names: each further argument would cost the server as much as all of these together. A record is
# returned as it is stored, which `record_of` decodes.


Arguments = tuple[bytes, ...]
"""The packed request, followed by byte strings as they are."""
Place = tuple[str, str]

_CODES: Final = {status: code for code, status in enumerate(STATUSES)}
_NEWER: Final = -1
_UNREADABLE: Final = (*CAUGHT, TypeError)
"""What is raised where a script returns a list: there is a record, but not one that it can read."""

# In the format that the scripts unpack.
_CLAIM: Final = Struct(">qqBBI4H")
_OWNER: Final = Struct(">qH")
_TOKEN: Final = Struct(">q")
_RENEW: Final = Struct(">qq")
_REVISION: Final = Struct(">Q")
_SETTLE: Final = Struct(">BqBB")
_RELEASE: Final = Struct(">BBBBqq")
_RESOLVE: Final = Struct(">BqBBB")
_FORGET: Final = Struct(">qBB")
_ANSWER: Final = Struct(">Bq")
_ANY_NUMBER: Final = 2**32 - 1
GONE: Final = 4
"""The reply to a forget that found nothing."""
_VERDICTS: Final = {1: Verdict.DONE, 2: Verdict.ENDED, 3: Verdict.LOST, GONE: Verdict.DONE}
_ANSWERS: Final[dict[int, type[Answer]]] = {
    1: Granted,
    2: Busy,
    3: Replay,
    4: Mismatch,
    5: Held,
    6: Spent,
}


def name_of(prefix: bytes, scope: str | None, key: str) -> bytes:
    """Return the Redis key of a record."""
    stored = f"{scope}/{key}"
    if scope is None or "%" in stored or stored.count("/") > 1:
        stored = stored_key(scope, key)
    return prefix + stored.encode()


def channel_of(name: bytes) -> bytes:
    """Return the channel on which the end of the attempt is published, as `lua/wake.lua` does."""
    return name + b":ended"


def place_of(prefix: bytes, name: bytes) -> Place | None:
    """Return scope and key of a Redis key, or None if it is not a record of ours."""
    try:
        stored = name.removeprefix(prefix).decode("ascii")
    except UnicodeDecodeError:
        return None
    scope, slash, key = stored.rpartition("/")
    if not key or (slash and not scope) or "/" in scope:
        return None
    place = unquote(scope), unquote(key)
    return place if stored_key(place[0] or None, place[1]) == stored else None


def held_set(prefix: bytes) -> bytes:
    """Return the key of the sorted set of held records. No record has such a key."""
    return prefix + b"/held"


def audit_list(prefix: bytes) -> bytes:
    """Return the key of the list with the audit trail. No record has such a key."""
    return prefix + b"/audit"


def pattern_of(prefix: bytes) -> bytes:
    """Return the pattern with which SCAN finds all records."""
    special = b"\\*?[]^"
    return b"".join(b"\\%c" % one if one in special else b"%c" % one for one in prefix) + b"*"


# Requests


def claim(ask: Claim) -> Arguments:
    """Return the arguments of claim.lua."""
    nonce, fingerprint = ask.nonce.encode(), (ask.fingerprint or "").encode()
    label, reference = ask.label.encode(), ask.reference.encode()
    try:
        head = _CLAIM.pack(
            ask.lease,
            ask.ttl,
            ask.on_expired == "hold",
            ask.fingerprint is not None,
            _ANY_NUMBER if ask.max_attempts is None else ask.max_attempts,
            len(nonce),
            len(fingerprint),
            len(label),
            len(reference),
        )
    except StructError as error:
        raise _too_large(ask, error) from None
    return (b"".join((head, nonce, fingerprint, label, reference)),)


def _too_large(ask: Claim, error: StructError) -> ConfigurationError:
    return ConfigurationError(
        f"the claim of {ask.key!r} does not fit into a record ({error}); nonce, fingerprint, label "
        f"and reference have at most 65,535 bytes each: shorten what is longer"
    )


def renew(ask: Renew) -> Arguments:
    """Return the arguments of renew.lua."""
    return (_owned(ask) + _RENEW.pack(ask.lease, ask.ttl),)


def note(ask: Note) -> Arguments:
    """Return the arguments of note.lua. A negative revision counts as 0."""
    return _owned(ask) + _REVISION.pack(max(ask.revision, 0)), ask.noted


def settle(ask: Settle) -> Arguments:
    """Return the arguments of settle.lua."""
    result, error = ask.result, ask.error
    ends = _SETTLE.pack(_CODES[ask.status], ask.ttl, result is not None, error is not None)
    packed = _owned(ask) + ends
    if result is not None and error is None:
        return packed, result
    return packed, *_given(result, error)


def release(ask: Release) -> Arguments:
    """Return the arguments of release.lua."""
    packed = _owned(ask) + _RELEASE.pack(
        ask.uncertain, ask.hold, ask.unused, ask.counted, ask.bare_ttl, ask.ttl
    )
    return (packed,) if ask.error is None else (packed, ask.error)


def resolve(ask: Resolve) -> Arguments:
    """Return the arguments of resolve.lua."""
    result, error = ask.result, ask.error
    given = result is not None, error is not None, bool(ask.audit)
    ends = _RESOLVE.pack(_CODES[ask.status], ask.ttl, *given)
    by_hand = (ask.audit,) if ask.audit else ()
    return _TOKEN.pack(ask.token) + ends, *_given(result, error), *by_hand


def forget(ask: Forget) -> Arguments:
    """Return the arguments of forget.lua."""
    packed = _FORGET.pack(ask.token, ask.force, bool(ask.audit))
    return (packed, ask.audit) if ask.audit else (packed,)


def watch(token: int) -> Arguments:
    """Return the arguments of watch.lua."""
    return (_TOKEN.pack(token),)


def _owned(ask: Owned) -> bytes:
    nonce = ask.nonce.encode()
    return _OWNER.pack(ask.token, len(nonce)) + nonce


def _given(result: bytes | None, error: bytes | None) -> Arguments:
    if error is None:
        return () if result is None else (result,)
    return (error,) if result is None else (result, error)


def give_back(ask: Claim, record: Record) -> Release:
    """Return the request that releases a claim which was not used."""
    return Release(
        ask.scope,
        ask.key,
        token=record.token,
        nonce=ask.nonce,
        error=None,
        uncertain=False,
        hold=False,
        unused=True,
        counted=ask.max_attempts is not None,
        bare_ttl=machine.HOUR,
        ttl=ask.ttl,
    )


# Replies


def answer(ask: Claim, reply: Any) -> Answer:
    """Return the answer to a claim. For a new record the script returns the time only."""
    if type(reply) is int:
        return machine.claim(None, ask, reply)[1]
    try:
        code, now = _ANSWER.unpack_from(reply)
        return _ANSWERS[code](record_of(ask.scope, ask.key, reply, _ANSWER.size), now)
    except _UNREADABLE:
        raise _unreadable(ask.scope, ask.key, reply) from None


def verdict(scope: str | None, key: str, reply: Any) -> Verdict:
    """Return the answer to a write. Raise UnreadableError if the record cannot be read."""
    if isinstance(reply, list):
        raise _unreadable(scope, key, reply)
    return _VERDICTS[reply]


def running(scope: str | None, key: str, reply: Any) -> bool:
    """Return whether the watched attempt is still running."""
    if isinstance(reply, list):
        raise _unreadable(scope, key, reply)
    return bool(reply)


def found(scope: str | None, key: str, reply: Any) -> Record | None:
    """Return the record, or None if there is none."""
    try:
        return None if reply is None else record_of(scope, key, reply)
    except _UNREADABLE:
        raise _unreadable(scope, key, reply) from None


def _unreadable(scope: str | None, key: str, reply: Any) -> UnreadableError:
    if type(reply) is list and reply[0] == _NEWER:
        msg = (
            f"the record of {key!r} was written by a newer release (format {reply[1]}, this one "
            f"reads up to {FORMAT}); upgrade oncekey here as well"
        )
    else:
        msg = (
            f"what is stored for {key!r} is not what oncekey writes, or was damaged; look at it in "
            f"Redis, and delete it there to let the next call run"
        )
    return UnreadableError(msg, key=key, scope=scope)


# Pages


def places(prefix: bytes, names: Iterable[bytes], ask: Scan) -> list[Place]:
    """Return the places of the records that a scan may return, sorted and without duplicates."""
    here = {place_of(prefix, name) for name in names}
    return sorted(
        place
        for place in here
        if place is not None
        and (ask.any_scope or place[0] == (ask.scope or ""))
        and (ask.after is None or place > ask.after)
    )


def page(records: list[Record], ask: Scan) -> Page:
    """Return the page, with a cursor if there are more records than the limit."""
    told = records[: ask.limit]
    if len(records) == len(told):
        return Page(told, None)
    return Page(told, (told[-1].scope or "", told[-1].key))


# The audit trail


ADD_ENTRY: Final = f"""
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
redis.call('LPUSH', KEYS[1], struct.pack('>I8', now) .. ARGV[1])
redis.call('LTRIM', KEYS[1], 0, {KEPT - 1})
"""


def entries(listed: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the times and the entries of the audit trail."""
    return [(_REVISION.unpack_from(one)[0], one[_REVISION.size :]) for one in listed]


# The sums for the charts: a hash with a field for each slot.


_LASTING: Final = 8 * 86_400
"""The number of seconds after which the sums of a store that nobody uses any more are removed."""
_SLOT: Final = Struct(">QQQQQQ")
_RINGS: Final = ", ".join(f"{{{ring.width}, {ring.length}, {ring.first}}}" for ring in RINGS)
ADD_ACTIVITY: Final = f"""
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local moment = now - ARGV[1]
for _, ring in ipairs({{{_RINGS}}}) do
  local width, at = ring[1], moment - moment % ring[1]
  if now - width * ring[2] < at and at <= now then
    local place = ring[3] + at / width % ring[2]
    local sums, begun = {{0, 0, 0, 0}}, 0
    local kept = redis.call('HGET', KEYS[1], place)
    if kept then
      local _, before, a, b, c, d = struct.unpack('>I8I8I8I8I8I8', kept)
      begun = before
      if before == at then
        sums = {{a, b, c, d}}
      end
    end
    if begun <= at then
      redis.call('HSET', KEYS[1], place, struct.pack('>I8I8I8I8I8I8', width, at, sums[1] + ARGV[2],
        sums[2] + ARGV[3], sums[3] + ARGV[4], sums[4] + ARGV[5]))
    end
  end
end
redis.call('EXPIRE', KEYS[1], {_LASTING})
"""
ACTIVITY: Final = "return {redis.call('TIME'), redis.call('HVALS', KEYS[1])}"


def activity_hash(prefix: bytes) -> bytes:
    """Return the key of the hash with the sums. No record has such a key."""
    return prefix + b"/activity"


def activity(clock: Sequence[Any], slots: Iterable[bytes]) -> Activity:
    """Return the sums, from the server's time and the fields of the hash."""
    now = int(clock[0]) * 1_000_000 + int(clock[1])
    return activity_of(map(_SLOT.unpack, slots), now)


# The scripts: one for each verb, in the form that the server understands.


OLDEST: Final = (6, 2)
_KNOWS_FLAGS: Final = (7, 0)
# The parts of each script, in their order. They share local variables, so they need no functions.
_PARTS: Final = {
    "claim": ("record", "claim", "held", "save", "granted"),
    "renew": ("record", "owner", "renew", "save", "done"),
    "note": ("record", "owner", "note", "save", "done"),
    "settle": ("record", "owner", "settle", "ending", "wake", "held", "save", "done"),
    "release": ("record", "owner", "release", "wake", "held", "save", "done"),
    "resolve": ("record", "resolve", "ending", "wake", "held", "save", "audit", "done"),
    "forget": ("record", "forget", "wake", "held", "audit", "done"),
    "restore": ("record", "restore", "held", "done"),
    "get": ("record", "get"),
    "watch": ("record", "watch"),
}
_BESIDE: Final = {"held": "HELD_SET", "audit": "AUDIT_LIST"}
"""The parts that write to another key than the record, and what they call it."""
# Allowed on a server that is out of memory, which must still learn how running attempts ended: this
# is how it gets free memory.
_WHEN_FULL: Final = frozenset({"settle", "renew", "release"})


class Script(NamedTuple):
    """The text of a script, and the hash by which a server knows it."""

    text: str
    sha: bytes


Scripts = Mapping[str, Script]


def scripts_for(facts: Mapping[str, Any], prefix: bytes | None = None) -> Scripts:
    """Return the scripts for a server with this INFO, which may be empty if it is unknown.

    With a prefix they keep the set of held records and the audit trail. Without one they do not: in
    a cluster a script may write only to the slot of its record. Raise ConfigurationError if the
    server is too old.
    """
    if "redis_version" not in facts and facts:  # a cluster returns the facts of each node
        facts = next(iter(facts.values()))
    version = _version(str(facts.get("redis_version", "6.2")))
    if version < OLDEST:
        msg = (
            f"the Redis server has version {facts['redis_version']}; oncekey needs Redis 6.2 or "
            f"newer, or Valkey: upgrade the server"
        )
        raise ConfigurationError(msg)
    return written(flags=version >= _KNOWS_FLAGS, prefix=prefix)


def keeps_held(facts: Mapping[str, Any]) -> bool:
    """Return whether scripts may keep a set of held records on a server with this INFO."""
    return facts.get("redis_mode") != "cluster"


@cache
def written(*, flags: bool, prefix: bytes | None) -> Scripts:
    """Return all scripts, with flags if the server can read them; see `scripts_for`."""
    names = {} if prefix is None else {"held": held_set(prefix), "audit": audit_list(prefix)}
    made: dict[str, Script] = {}
    for verb, parts in _PARTS.items():
        first = "#!lua flags=allow-oom\n" if flags and verb in _WHEN_FULL else ""
        texts = [_named(part, names) for part in parts if part in names or part not in _BESIDE]
        text = first + "\n".join(texts)
        made[verb] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest().encode())
    return made


def _named(part: str, names: Mapping[str, bytes]) -> str:
    """Return the text of a part, with the name of the key that it writes to beside the record."""
    if part not in names:
        return _text(part)
    name = "".join(map("\\{:03}".format, names[part]))
    return f"local {_BESIDE[part]} = '{name}'\nlocal AUDIT_KEPT = {KEPT}\n{_text(part)}"


def _text(name: str) -> str:
    return (resources.files("oncekey.stores.redis") / "lua" / f"{name}.lua").read_text("utf-8")


def _version(text: str) -> tuple[int, ...]:
    digits = [part for part in text.split(".")[:2] if part.isdigit()]
    return tuple(map(int, digits))
