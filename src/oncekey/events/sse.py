"""Server-sent events: parsing of a client's request, and encoding of the answer."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from random import randint
from typing import Final

import msgspec

from oncekey.errors import UnreadableError
from oncekey.events.cursor import Cursor, Resync
from oncekey.events.event import Event, EventBody
from oncekey.events.log import Page, Position, position

HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would hold events back
]
JSON_HEADERS: Final = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
HEARTBEAT: Final = b":\n\n"
_RETRY: Final = (1000, 3000)
"""Milliseconds after which a browser comes back, at the least and at the most."""
FOREIGN: Final = Position(foreign=True)
_encode = msgspec.json.Encoder().encode


def wanted(headers: Iterable[tuple[bytes, bytes]], query: Mapping[str, str]) -> Position:
    """Return what the client saw last. A position that is none of ours leads to a resync, no error.

    A browser that reconnects sends Last-Event-ID by itself, with the address that it had at first.
    So the header counts before `after`, and `after` before `last_seq`.
    """
    for name, value in headers:
        if name.lower() == b"last-event-id" and value:
            return position(value.decode("latin-1"), None)
    if query.get("after"):
        return position(query["after"], None)
    number = query.get("last_seq")
    if number is None:
        return Position()
    plain = number.isascii() and number.isdecimal() and len(number) <= len(str(2**53))
    return position(None, int(number)) if plain else FOREIGN


def wants_json(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the client asks for a page of JSON and not for a stream."""
    kinds = b",".join(value for name, value in headers if name.lower() == b"accept")
    return b"application/json" in kinds and b"text/event-stream" not in kinds


def cors(
    headers: Iterable[tuple[bytes, bytes]], origins: Container[str]
) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of another origin read the answer, or none."""
    asked = {name.lower(): value for name, value in headers}
    origin = asked.get(b"origin")
    if origin is None:
        return []
    named = origin.decode("latin-1") in origins
    if not named and "*" not in origins:
        return []
    allowed = [(b"access-control-allow-origin", origin if named else b"*"), (b"vary", b"origin")]
    if named:
        allowed.append((b"access-control-allow-credentials", b"true"))
    if b"access-control-request-method" in asked:
        allowed += [
            (b"access-control-allow-methods", b"GET"),
            (b"access-control-allow-headers", asked.get(b"access-control-request-headers", b"")),
            (b"access-control-max-age", b"600"),
        ]
    return allowed


def json(value: object) -> bytes:
    """Return the value as JSON."""
    return _encode(value)


def history(page: Page, chosen: list[Event]) -> bytes:
    """Return a page as JSON, of which the client wants these events."""
    return _encode(
        {
            "events": [
                {**msgspec.to_builtins(_event_body(one)), "id": one.id, "offset": one.offset}
                for one in chosen
            ],
            "cursor": None if page.cursor is None else str(page.cursor),
            "resync": None if page.resync is None else page.resync.reason,
            "more": bool(page.events),
        }
    )


def greeting() -> bytes:
    """Return the first bytes of a stream. They tell the client that it is connected.

    They also tell it when to come back, at random: else all come back at once.
    """
    return b"retry: %d\n\n" % randint(*_RETRY)  # noqa: S311 - no secret


def event_frame(job: str, payload: bytes, cursor: Cursor) -> bytes:
    """Return the frame of an event, with the id that the client comes back with.

    The JSON is passed on as it was published, with the offset at its end: a client that is cut off
    may drop what it has seen. The id is the last line, because some clients take it as soon as they
    have read it, and would skip an event that is cut off after it.
    Raise UnreadableError if the payload is no object of JSON in one line.
    """
    if payload[:1] != b"{" or payload[-1:] != b"}" or b"\n" in payload:
        msg = f"entry {cursor.offset} in the log of job {job!r} is no event: it is no JSON"
        raise UnreadableError(msg, key=job)
    offset = cursor.offset
    return b'data: %s,"offset":%d}\nid: %s\n\n' % (payload[:-1], offset, str(cursor).encode())


def data_of(frame: bytes) -> bytes:
    """Return the JSON in the frame of an event."""
    return frame[len(b"data: ") : frame.index(b"\n")]


def state_frame(event: Event | None) -> bytes:
    """Return the frame of the job's state, or of null.

    It has no id, since it is no place in the log.
    """
    return b"event: state\ndata: %s\n\n" % (b"null" if event is None else _body(event))


def resync_frame(resync: Resync, before: Cursor) -> bytes:
    """Return the frame that tells the client to drop what it has.

    Its id is the place before what follows. Without an id, an EventSource that is cut off right
    after it would come back with the `after` of its first address, and never get what is before.
    """
    reason = _encode({"reason": resync.reason})
    return b"event: resync\ndata: %s\nid: %s\n\n" % (reason, str(before).encode())


def _body(event: Event) -> bytes:
    """Return the event as JSON, as it was published. JSON has no line breaks, so it is one line."""
    return _encode(_event_body(event))


def _event_body(event: Event) -> EventBody:
    return EventBody(event.job, event.domain, event.stage, event.seq, event.data, event.timestamp)
