"""Looking at a Redis server: one step of SCAN for a page, in the order in which it hands out keys.

Never KEYS, which stops the server for everybody. How many records there are is told by the number
of all keys and by what one step shows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from oncekey.core.record import Record
from oncekey.looking import redis_steps as steps
from oncekey.looking.ask import Counts, Look, Sight, bad_cursor, tally, wanted
from oncekey.looking.redis_records import UNKNOWN, as_written
from oncekey.looking.redis_steps import Step, digest_of
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.errors import CAUGHT
from oncekey.stores.redis.store import RedisStore

_STEP: Final = 500
"""Keys that one step asks for, where something is chosen by or all are counted."""
_SAMPLE: Final = 300
"""Keys that the counts come from."""


class Seen(NamedTuple):
    """A record, the name of its key and the size of its result."""

    name: bytes
    record: Record
    size: int


def look(store: RedisStore, ask: Look) -> Sight:
    """A page, in no order of time."""
    try:
        return _page(store, ask)
    except CAUGHT as error:
        raise _explained(store, error) from error


def counts(store: RedisStore, *, exact: bool) -> Counts:
    """What one step shows, scaled to the number of all keys; everything where that is all."""
    try:
        return _counts(store, exact=exact)
    except CAUGHT as error:
        raise _explained(store, error) from error


def due(store: RedisStore, grace: int) -> int | None:  # noqa: ARG001 - as for every store
    """The server removes what expired by itself."""
    return None


def read_newer(store: RedisStore, scope: str | None, key: str) -> Record | None:
    """The record, as far as this release understands it."""
    try:
        stored = steps.read_one(_client(store), codec.name_of(_prefix(store), scope, key))
    except CAUGHT as error:
        raise _explained(store, error) from error
    return as_written(scope, key, stored)


def _page(store: RedisStore, ask: Look) -> Sight:
    here = Step.of(ask.after)
    nodes = steps.nodes_of(_client(store))
    if here.node >= len(nodes):
        raise bad_cursor(ask.after)
    node, plain = nodes[here.node], ask == Look(after=ask.after, limit=ask.limit)
    count = ask.limit if plain else max(_STEP, ask.limit)
    following, names = steps.step(node, here.cursor, count, steps.pattern_of(_prefix(store), ask))
    if ask.status is not None:
        read = steps.read_statuses(node, names)
        fit = (ask.status, UNKNOWN)
        names = [name for name, status in zip(names, read, strict=True) if status in fit]
    if here.told or len(names) > ask.limit:
        names = sorted((name for name in names if digest_of(name) > here.told), key=digest_of)
    batch = names[: ask.limit] if plain else names
    now, found = _read(store, node, batch)
    told = [one for one in found if wanted(one.record, ask, now)]
    after = here.following(following, len(nodes))
    if len(told) > ask.limit:
        told = told[: ask.limit]
        after = here._replace(told=digest_of(told[-1].name))
    elif len(batch) < len(names):
        after = here._replace(told=digest_of(batch[-1]))
    return Sight(
        records=[one.record for one in told],
        sizes=[one.size or None for one in told],
        after=None if after is None else str(after),
        newest_first=False,
        now=now,
    )


def _counts(store: RedisStore, *, exact: bool) -> Counts:
    seen: dict[str, float] = {}
    whole, looked_at = True, 0
    nodes = steps.nodes_of(_client(store))
    for node in nodes:
        cursor, handed_out = 0, 0
        ours: dict[str, int] = {}
        while True:
            cursor, names = steps.step(node, cursor, _STEP if exact else _SAMPLE, None)
            handed_out += len(names)
            named = [name for name in names if name.startswith(_prefix(store))]
            for status in filter(None, steps.read_statuses(node, named)):
                ours[status] = ours.get(status, 0) + 1
            if not (cursor and exact):
                break
        share = max(node.dbsize() / max(handed_out, 1), 1.0) if cursor else 1.0
        for status, count in ours.items():
            seen[status] = seen.get(status, 0) + count * share
        looked_at += sum(ours.values())
        whole = whole and not cursor
    by_status = tally(seen)
    return Counts(
        total=sum(by_status.values()),
        by_status=by_status,
        exact=whole,
        looked_at=looked_at,
        now=steps.time_of(nodes[0]),
    )


def _read(store: RedisStore, node: Any, names: list[bytes]) -> tuple[int, list[Seen]]:  # noqa: ANN401 - a client of redis-py
    """The time, and the living records under these names; what is somebody else's is left out."""
    places = {name: place for name in names if (place := codec.place_of(_prefix(store), name))}
    now, replies = steps.read(node, list(places))
    found: list[Seen] = []
    for (name, (scope, key)), reply in zip(places.items(), replies, strict=True):
        stored, size = reply or (None, 0)
        record = as_written(scope or None, key, stored, whole=False)
        if record is not None and not 0 < record.expires <= now:
            found.append(Seen(name, record, size))
    return now, found


def _client(store: RedisStore) -> Any:  # noqa: ANN401 - Redis or RedisCluster
    return store._clients.client()  # noqa: SLF001 - the way to the server that its verbs go


def _prefix(store: RedisStore) -> bytes:
    return store._prefix  # noqa: SLF001 - what its names start with


def _explained(store: RedisStore, error: Exception) -> Exception:
    return store._explained(error)  # noqa: SLF001 - in the words of its verbs
