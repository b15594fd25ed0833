"""List and count the records of a Redis server, with one step of SCAN for a page.

Records come in the order of SCAN. KEYS is never used, because it blocks the server. Counts are
estimated from the number of all keys and from one step. Held records are counted and listed by the
set that the scripts keep of them; a cluster has none.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import replace

from oncekey.core.key import stored_key
from oncekey.core.record import FORMAT, Record, Status
from oncekey.stores.browse import (
    RecordCounts,
    RecordPage,
    RecordQuery,
    StoreSize,
    bad_cursor,
    per_status,
    wanted,
    whole_number,
)
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.commands import MAGIC, STATUS_AT, STATUSES, record_of
from oncekey.stores.redis.errors import CAUGHT
from oncekey.stores.redis.store import RedisStore

UNKNOWN: Final = cast("Status", "unknown")
"""The status of a record in a format that this release does not understand."""

_STATUSES: Final = {MAGIC + bytes((FORMAT, code)): status for code, status in enumerate(STATUSES)}


def status_in(start: bytes) -> str | None:
    """Return the status from the first bytes of a record, or None if it is not a record."""
    return _STATUSES.get(start, UNKNOWN) if start.startswith(MAGIC) else None


def as_written(
    scope: str | None, key: str, stored: bytes | None, *, whole: bool = True
) -> Record | None:
    """Decode a record, also one of a newer release. Return None if it is not a record.

    Fields that cannot be understood are empty. Bytes that are not `whole` end before the result.
    """
    if stored is None or not stored.startswith(MAGIC):
        return None
    try:
        found = record_of(scope, key, stored)
    except codec.CAUGHT:
        version = stored[STATUS_AT - 1 : STATUS_AT]
        return _nameless(scope, key, version[0] if version else 0)
    return found if whole else replace(found, result=None)


def _nameless(scope: str | None, key: str, version: int) -> Record:
    """Return a record of which only the place and the version are known."""
    return Record(
        scope=scope,
        key=key,
        status=UNKNOWN,
        fingerprint=None,
        token=0,
        nonce="",
        attempt=0,
        lease_end=0,
        created=0,
        started=0,
        updated=0,
        expires=0,
        version=version,
    )


# Steps through the keys of a Redis server, or of the nodes of a cluster one after the other.


# One script for many keys: a command for each would cost the driver ten times as much. The keys are
# not passed as KEYS, because the keys of one node of a cluster belong to many slots.
_READ: Final = """
local clock = redis.call('TIME')
local told, SIZE = {clock[1] * 1000000 + clock[2]}, 97
for number, name in ipairs(ARGV) do
  local head = redis.pcall('GETRANGE', name, 0, SIZE - 1)
  if type(head) == 'string' and #head == SIZE then
    local a, b, c, d, e, f, g = struct.unpack('>I2I2I2I2I2I4I4', head, SIZE - 17)
    local before = SIZE + a + b + c + d + e + f + g
    told[number + 1] = {
      redis.call('GETRANGE', name, 0, before - 1), redis.call('STRLEN', name) - before,
    }
  else
    told[number + 1] = type(head) == 'string' and {head, 0}
  end
end
return told
"""
_HEADS: Final = """
local told = {}
for number, name in ipairs(ARGV) do
  local start = redis.pcall('GETRANGE', name, 0, 5)
  told[number] = type(start) == 'string' and start
end
return told
"""


# One step of SCAN and the head of each record of it, in one round trip: the names of a sample would
# cost the driver more than all the rest.
_COUNTED: Final = """
local clock = redis.call('TIME')
local step = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2])
local told = {clock[1] * 1000000 + clock[2], step[1], #step[2], redis.call('DBSIZE')}
for _, name in ipairs(step[2]) do
  if string.sub(name, 1, #ARGV[3]) == ARGV[3] then
    local head = redis.pcall('GETRANGE', name, 0, 54)
    if type(head) == 'string' and #head == 55 then
      told[#told + 1] = name
      told[#told + 1] = head
    end
  end
end
return told
"""
_LEASE_END: Final = slice(47, 55)


_HELD: Final = """
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {redis.call('ZCARD', KEYS[1]), oldest[2]}
"""


# Compares the set of held records with the records of these names, and corrects it if told to.
# Returns how many of the set are not held, and how many held ones are not in the set.
COMPARE: Final = """
local gone, missing = 0, 0
for number = 2, #ARGV do
  local name = ARGV[number]
  local head = redis.pcall('GETRANGE', name, 0, 94)
  local held = type(head) == 'string' and string.match(head, '^once.\\4') ~= nil
  local known = redis.call('ZSCORE', KEYS[1], name)
  if known and not held then
    gone = gone + 1
    if ARGV[1] == '1' then redis.call('ZREM', KEYS[1], name) end
  elseif held and not known then
    missing = missing + 1
    if ARGV[1] == '1' then
      redis.call('ZADD', KEYS[1], (struct.unpack('>I8', head, 40)), name)
    end
  end
end
return {gone, missing}
"""


class ScanStep(NamedTuple):
    """The cursor of a page: the node, the cursor of its SCAN, and what was told of that step.

    A step is never cut at a place, because it may have other keys when it is repeated: the server
    grows and shrinks its table, and others write. So `told` has the digest of each key of the step
    that came on an earlier page, and only these are left out. There are a few: a page asks for
    smaller steps until one fits, and the smallest is one bucket of the table.
    """

    node: int = 0
    cursor: int = 0
    told: frozenset[str] = frozenset()

    @classmethod
    def of(cls, after: str | None) -> ScanStep:
        """Parse a cursor. Raise ConfigurationError if it is not valid."""
        if after is None:
            return cls()
        try:
            node, cursor, told = after.split(".")
            digests = frozenset(filter(None, told.split("-")))
            return cls(whole_number(node), whole_number(cursor, 2**64), digests)
        except ValueError:
            raise bad_cursor(after) from None

    def following(self, cursor: int, nodes: int) -> ScanStep | None:
        """Return the next step after SCAN has answered with `cursor`, or None at the end."""
        if cursor:
            return ScanStep(self.node, cursor)
        return ScanStep(self.node + 1) if self.node + 1 < nodes else None

    def __str__(self) -> str:
        return f"{self.node}.{self.cursor}.{'-'.join(sorted(self.told))}"


class HeldPlace(NamedTuple):
    """The cursor of a page of held records: since when, and who of that moment was told."""

    since: int | str = "+inf"
    told: frozenset[str] = frozenset()

    @classmethod
    def of(cls, after: str | None) -> HeldPlace:
        """Parse a cursor. Raise ConfigurationError if it is not valid."""
        if after is None:
            return cls()
        try:
            since, told = after.split(".")
            return cls(whole_number(since), frozenset(filter(None, told.split("-"))))
        except ValueError:
            raise bad_cursor(after) from None

    def following(self, found: list[tuple[bytes, int]], last: bytes) -> HeldPlace:
        """Return the place behind `last`, one of the names and moments that were found."""
        moment = dict(found)[last]
        upto = [name for name, _ in found].index(last) + 1
        told = {digest_of(name) for name, since in found[:upto] if since == moment}
        return HeldPlace(moment, frozenset(told) | (self.told if self.since == moment else set()))

    def __str__(self) -> str:
        return f"{self.since}.{'-'.join(sorted(self.told))}"


def nodes_of(client: Any) -> list[Any]:
    """Return the clients of all servers with keys of their own, in a stable order."""
    if not hasattr(client, "get_primaries"):
        return [client]
    primaries = sorted(client.get_primaries(), key=lambda node: str(node.name))
    return [client.get_redis_connection(node) for node in primaries]


def digest_of(name: bytes) -> str:
    """Return the digest of a key for a cursor, which may be shown where keys must not."""
    return sha1(name, usedforsecurity=False).hexdigest()[:12]


def scan_pattern(prefix: bytes, ask: RecordQuery) -> bytes:
    """Return the pattern for SCAN, as exact as the server can match the query."""
    if ask.any_scope:
        return codec.pattern_of(prefix)
    return codec.pattern_of(prefix + stored_key(ask.scope, ask.prefix).encode())


def scan_step(node: Any, cursor: int, count: int, pattern: bytes | None) -> tuple[int, list[bytes]]:
    """Do one step of SCAN. Return the next cursor, which is 0 at the end, and the keys."""
    following, names = node.scan(cursor, match=pattern, count=count, NEVER_DECODE=True)
    return following, list(dict.fromkeys(names))


def read(node: Any, names: list[bytes]) -> tuple[int, list[Any]]:
    """Return the time, and for each key what is before its result and the result's size.

    The entry of a key that is not a string is None.
    """
    if not names:
        return time_of(node), []
    now, *replies = node.execute_command("EVAL", _READ, 0, *names, NEVER_DECODE=True)
    return now, replies


def time_of(node: Any) -> int:
    """Return the time of the server in microseconds."""
    second, micro = node.time()
    return int(second * 1_000_000 + micro)


def read_statuses(node: Any, names: list[bytes]) -> list[str | None]:
    """Return the status under each key, or None where there is no record."""
    if not names:
        return []
    heads = node.execute_command("EVAL", _HEADS, 0, *names, NEVER_DECODE=True)
    return [None if head is None else status_in(head) for head in heads]


def read_one(node: Any, name: bytes) -> bytes | None:
    """Return the value of one key."""
    stored: bytes | None = node.execute_command("GET", name, NEVER_DECODE=True)
    return stored


_STEP: Final = 500
"""The number of keys in one step, if the query has conditions or if all are counted."""
_SAMPLE: Final = 300
"""The number of keys from which counts are estimated."""


class StoredRecord(NamedTuple):
    """A record, the name of its key and the size of its result."""

    name: bytes
    record: Record
    size: int


def list_records(store: RedisStore, ask: RecordQuery) -> RecordPage:
    """Return a page of records, in the order of SCAN."""
    try:
        return _page(store, ask)
    except CAUGHT as error:
        raise store.explained(error) from error


def count_records(store: RedisStore, *, exact: bool) -> RecordCounts:
    """Count the records of one step and scale them to all keys. Count everything if `exact`."""
    try:
        return _counts(store, exact=exact)
    except CAUGHT as error:
        raise store.explained(error) from error


def read_newer(store: RedisStore, scope: str | None, key: str) -> Record | None:
    """Return the record, as far as this release understands it, or None."""
    try:
        stored = read_one(store.clients.client(), codec.name_of(store.prefix, scope, key))
    except CAUGHT as error:
        raise store.explained(error) from error
    return as_written(scope, key, stored)


_USAGE: Final = """
local bytes, new, seen, clock = 0, 0, 0, redis.call('TIME')
local since = clock[1] * 1000000 + clock[2] - 86400000000
for _, name in ipairs(ARGV) do
  local head = redis.pcall('GETRANGE', name, 0, 22)
  if type(head) == 'string' and #head == 23 and string.sub(head, 1, 4) == 'once' then
    seen = seen + 1
    bytes = bytes + redis.call('MEMORY', 'USAGE', name)
    if struct.unpack('>I8', head, 16) > since then new = new + 1 end
  end
end
return {seen, bytes, new}
"""


def measure(store: RedisStore, total: int) -> StoreSize:
    """Estimate from one step of SCAN on each node."""
    try:
        seen = size = new = 0
        for node in nodes_of(store.clients.client()):
            _, names = scan_step(node, 0, _SAMPLE, codec.pattern_of(store.prefix))
            if names:
                told = node.eval(_USAGE, 0, *names)
                seen, size, new = seen + told[0], size + told[1], new + told[2]
    except CAUGHT as error:
        raise store.explained(error) from error
    share = total / max(seen, 1)
    return StoreSize(bytes=round(size * share), exact=share == 1, new=round(new * share))


def correct_held(store: RedisStore) -> int:
    """Compare the set of held records with all records. Return how many corrections it needed."""
    try:
        held = store.held_set()
        if held is None:
            return 0
        node, cursor = store.clients.client(), 0
        corrected: int = 0
        members: list[bytes] = node.execute_command("ZRANGE", held, 0, -1, NEVER_DECODE=True)
        for start in range(0, len(members), _STEP):
            corrected += sum(node.eval(COMPARE, 1, held, 1, *members[start : start + _STEP]))
        while True:
            cursor, names = scan_step(node, cursor, _STEP, codec.pattern_of(store.prefix))
            corrected += sum(node.eval(COMPARE, 1, held, 1, *names))
            if not cursor:
                return corrected
    except CAUGHT as error:
        raise store.explained(error) from error


def _page(store: RedisStore, ask: RecordQuery) -> RecordPage:
    held = store.held_set() if ask.status == "held" else None
    if held is not None:
        return _page_of_held(store, held, ask)
    here = ScanStep.of(ask.after)
    nodes = nodes_of(store.clients.client())
    if here.node >= len(nodes):
        raise bad_cursor(ask.after)
    plain = ask == RecordQuery(after=ask.after, limit=ask.limit)
    # A step has a few keys more than it was asked for.
    count = ask.limit - ask.limit // 8 if plain else max(_STEP, ask.limit)
    while True:
        following, now, told = _step(store, ask, nodes[here.node], here, count)
        if len(told) <= ask.limit or count == 1:
            break
        count = max(1, count * ask.limit // (2 * len(told)))
    after = here.following(following, len(nodes))
    if len(told) > ask.limit:
        told = told[: ask.limit]
        after = here._replace(told=here.told | {digest_of(one.name) for one in told})
    return RecordPage(
        records=[one.record for one in told],
        sizes=[one.size or None for one in told],
        after=None if after is None else str(after),
        newest_first=False,
        now=now,
    )


def _page_of_held(store: RedisStore, held: bytes, ask: RecordQuery) -> RecordPage:
    """Return a page of the set of held records, those first that were held last."""
    node, here = store.clients.client(), HeldPlace.of(ask.after)
    plain = ask == RecordQuery(status="held", after=ask.after, limit=ask.limit)
    count = ask.limit if plain else max(_STEP, ask.limit)
    wish = ("REV", "LIMIT", 0, count + len(here.told) + 1, "WITHSCORES")
    words = ("ZRANGE", held, here.since, "-inf", "BYSCORE", *wish)
    listed: list[Any] = node.execute_command(*words, NEVER_DECODE=True)
    found = [(name, int(float(since))) for name, since in _pairs(listed)]
    names = [name for name, _ in found if digest_of(name) not in here.told]
    now, read = _read(store, node, names[:count])
    told = [one for one in read if wanted(one.record, ask, now)]
    last = None
    if len(told) > ask.limit:
        told = told[: ask.limit]
        last = told[-1].name
    elif len(names) > count:
        last = names[count - 1]
    return RecordPage(
        records=[one.record for one in told],
        sizes=[one.size or None for one in told],
        after=None if last is None else str(here.following(found, last)),
        newest_first=True,
        now=now,
    )


def _pairs(listed: list[Any]) -> list[tuple[bytes, Any]]:
    """Return members and scores, which come in pairs or one after the other (RESP 2)."""
    if listed and isinstance(listed[0], (list, tuple)):
        return [(name, score) for name, score in listed]
    return list(zip(listed[::2], listed[1::2], strict=True))


def _step(
    store: RedisStore, ask: RecordQuery, node: Any, here: ScanStep, count: int
) -> tuple[int, int, list[StoredRecord]]:
    """Return the cursor that follows, the time, and the records of this step that match."""
    following, names = scan_step(node, here.cursor, count, scan_pattern(store.prefix, ask))
    if here.told:
        names = [name for name in names if digest_of(name) not in here.told]
    if ask.status is not None:
        read = read_statuses(node, names)
        fit = (ask.status, UNKNOWN)
        names = [name for name, status in zip(names, read, strict=True) if status in fit]
    now, found = _read(store, node, names)
    return following, now, [one for one in found if wanted(one.record, ask, now)]


def _counts(store: RedisStore, *, exact: bool) -> RecordCounts:
    seen: dict[str, float] = {}
    whole, looked_at, now, over = True, 0, 0, 0.0
    nodes = nodes_of(store.clients.client())
    for node in nodes:
        cursor, handed_out, lapsed = 0, 0, 0
        ours: dict[str, int] = {}
        told: set[int] = set()  # SCAN returns a key twice when its table grows or shrinks
        while True:
            now, cursor, found, keys, *pairs = _step_of_counts(store, node, cursor, exact=exact)
            handed_out += found
            for name, head in zip(pairs[::2], pairs[1::2], strict=True):
                status = status_in(head[: STATUS_AT + 1])
                if status is None or hash(name) in told:
                    continue
                told.add(hash(name))
                ours[status] = ours.get(status, 0) + 1
                if status == "running" and int.from_bytes(head[_LEASE_END]) <= now:
                    lapsed += 1
            if not (cursor and exact):
                break
        share = max(keys / max(handed_out, 1), 1.0) if cursor else 1.0
        for status, count in ours.items():
            seen[status] = seen.get(status, 0) + count * share
        over += lapsed * share
        looked_at += sum(ours.values())
        whole = whole and not cursor
    by_status = per_status(seen)
    held = store.held_set()
    since: int | None = None
    if held is not None:
        count, *oldest = nodes[0].eval(_HELD, 1, held)
        by_status["held"] = by_status["held"] if whole else count
        since = int(float(oldest[0])) if oldest else None
    return RecordCounts(
        total=sum(by_status.values()),
        by_status=by_status,
        lapsed=round(over),
        exact=whole,
        held_exact=whole or held is not None,
        held_since=since,
        looked_at=looked_at,
        now=now,
    )


def _step_of_counts(store: RedisStore, node: Any, cursor: int, *, exact: bool) -> Any:
    """Return the time, the next cursor, the numbers of keys of this step and of all, and records.

    The records are their names and the first bytes of their values, one after the other.
    """
    count = _STEP if exact else _SAMPLE
    words = ("EVAL", _COUNTED, 0, cursor, count, store.prefix)
    now, following, *rest = node.execute_command(*words, NEVER_DECODE=True)
    return (now, int(following), *rest)


def _read(store: RedisStore, node: Any, names: list[bytes]) -> tuple[int, list[StoredRecord]]:
    """Return the time, and those of the records at these names that have not expired."""
    places = {name: place for name in names if (place := codec.place_of(store.prefix, name))}
    now, replies = read(node, list(places))
    found: list[StoredRecord] = []
    for (name, (scope, key)), reply in zip(places.items(), replies, strict=True):
        stored, size = reply or (None, 0)
        record = as_written(scope or None, key, stored, whole=False)
        if record is not None and not 0 < record.expires <= now:
            found.append(StoredRecord(name, record, size))
    return now, found


def where(store: RedisStore) -> str:
    """Return host, port and number of the database, or the name that Sentinel or a cluster has."""
    place, settings = store.clients.where, store.clients.settings
    return place if settings is None else f"{place}/{settings.get('db', 0)}"
