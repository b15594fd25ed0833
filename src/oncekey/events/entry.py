"""An entry of a shard's stream, as a router reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

from oncekey.events.cursor import parse
from oncekey.events.draft import check_job
from oncekey.events.event import Event, read_event
from oncekey.events.trouble import InvalidEventError


class StreamEntry(NamedTuple):
    """Its id, its fields and values one after the other, and how often it was delivered."""

    id: bytes
    fields: tuple[bytes, ...]
    deliveries: int = 1

    @property
    def payload(self) -> bytes:
        """The event, as JSON."""
        return self._field(b"data")

    def event(self) -> Event:
        """The event in it. Raises ValueError or InvalidEventError, with the reason, for none."""
        cursor = parse(self._field(b"id").decode())
        if cursor is None:
            raise InvalidEventError("the field id is no epoch.offset.mark")
        event = read_event(self.payload, cursor)
        check_job(event.job)
        return event

    def _field(self, name: bytes) -> bytes:
        pairs = dict(zip(self.fields[::2], self.fields[1::2], strict=False))
        if name not in pairs:
            raise InvalidEventError(f"the entry has no field {name.decode()}")
        return pairs[name]


def delivered(reply: Any) -> list[StreamEntry]:  # noqa: ANN401 - it depends on client and protocol
    """The entries of one stream in a reply to XREADGROUP."""
    if not reply:
        return []
    found = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    while found and isinstance(found[0], list) and found[0] and not isinstance(found[0][0], bytes):
        found = found[0]  # redis-py wraps it once more in RESP3
    return [StreamEntry(name, _flat(fields)) for name, fields in found if fields]


def reclaimed(reply: Any) -> tuple[int, list[StreamEntry]]:  # noqa: ANN401 - a reply of our script
    """How many were lost, and those that are ours now."""
    lost, taken = reply
    return lost, [StreamEntry(name, tuple(fields), count) for name, fields, count in taken]


def _flat(fields: Any) -> tuple[bytes, ...]:  # noqa: ANN401 - the same
    if isinstance(fields, dict):
        return tuple(part for pair in fields.items() for part in pair)
    return tuple(fields)
