"""Server-sent events: parsing of a client's request, and encoding of the answer."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from hashlib import sha256
from random import randint
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from oncekey.errors import UnreadableError
from oncekey.events.cursor import Cursor, Resync, parse
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import Event, EventBody, check_job
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
    after = last_id(headers, query)
    if after:
        return position(after, None)
    number = query.get("last_seq")
    if number is None:
        return Position()
    plain = number.isascii() and number.isdecimal() and len(number) <= len(str(2**53))
    return position(None, int(number)) if plain else FOREIGN


def pairs(scope: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and values of the query."""
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"))


def names(scope: Mapping[str, Any]) -> list[str]:
    """Return the jobs that the query names, if the path names none."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return [] if path.strip("/") else [value for name, value in pairs(scope) if name == "job"]


def last_id(headers: Iterable[tuple[bytes, bytes]], query: Mapping[str, str]) -> str:
    """Return the id of the last event that the client saw, of one job or of several."""
    for name, value in headers:
        if name.lower() == b"last-event-id" and value:
            return value.decode("latin-1")
    return query.get("after", "")


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


# Several jobs on one connection: the places in all of them travel in one id.


_LONGEST_ID: Final = 4096
_TAG: Final = 8
_LONGEST_PLACE: Final = _TAG + len(".~") + len(str(Cursor("f" * 32, 10**13 - 1, "f" * 8)))
_PLACE: Final = re.compile(rf"([0-9a-f]{{{_TAG}}})\.(.+)")
MOST_NAMES: Final = _LONGEST_ID // _LONGEST_PLACE
"""The most jobs that a client can name, so that its places in all of them fit into an id."""


def tag_of(job: str) -> str:
    """Return what stands for the job in an id: a job id may be long."""
    return sha256(job.encode()).hexdigest()[:_TAG]


def join_cursors(cursors: Mapping[str, Cursor | str]) -> str:
    """Return the id of a reader of several jobs, of the cursor of the last event seen of each.

    A page that shows some events of several jobs goes on after these with it. A job that is not in
    it starts at its beginning. Raise InvalidEventError if a cursor is none, or if there are too
    many.
    """
    if not isinstance(cursors, Mapping):
        raise InvalidEventError(f"give the cursor of the last event by job id, not {cursors!r}")
    if len(cursors) > MOST_NAMES:
        msg = f"an id has room for the cursors of {MOST_NAMES} jobs, not of {len(cursors)}"
        raise InvalidEventError(msg)
    for job, cursor in cursors.items():
        if parse(str(cursor)) is None:
            raise InvalidEventError(f"the cursor of job {check_job(job)!r} is none: {cursor!r}")
    return "~".join(f"{tag_of(check_job(job))}.{cursor}" for job, cursor in cursors.items())


class Places:
    """The places of one client in several jobs, and the frames that tell it of them.

    An id starts with the place of the event that it comes with. The places of jobs that the client
    has named always fit. Of the jobs of topics those follow whose events are the newest. A job for
    which there is no room starts at its beginning when the client comes back: none of its events is
    lost, and the client drops what it has seen.
    """

    def __init__(self, named: Iterable[str], after: str) -> None:
        """Take the jobs that were named, and the id that the client came with, or an empty one.

        Raise InvalidEventError if there are more of them than fit.
        """
        self._named = {job: tag_of(job) for job in named}
        if len(self._named) > MOST_NAMES or len(after) > _LONGEST_ID:
            msg = f"one connection has room for {MOST_NAMES} jobs and an id of {_LONGEST_ID} bytes"
            raise InvalidEventError(msg)
        self._foreign = False
        self._start: dict[str, str] = {}
        for part in after.split("~") if after else ():
            found = _PLACE.fullmatch(part)
            if found is None or parse(found[2]) is None:
                self._foreign = True
            else:
                self._start[found[1]] = found[2]
        self._at: dict[str, bytes] = {
            job: f"{tag}.{self._start[tag]}".encode()
            for job, tag in self._named.items()
            if tag in self._start and not self._foreign
        }
        """Where the client is, the newest place last."""

    def start(self, job: str) -> Position:
        """Return where the client is, or, if nothing was sent yet, where it starts.

        An id that is none of ours leads to a resync.
        """
        known = self._at.get(job)
        if known is not None:
            return position(known.decode()[_TAG + 1 :], None)
        if self._foreign:
            return FOREIGN
        tag = tag_of(job)
        after = self._start.get(tag)
        if after is not None:
            self._at[job] = f"{tag}.{after}".encode()
        return position(after, None)

    def event(self, job: str, frame: bytes, cursor: Cursor) -> bytes:
        """Return the frame of an event for this client."""
        return frame[: frame.index(b"\n")] + self._id(job, cursor)

    def resync(self, job: str, resync: Resync, before: Cursor) -> bytes:
        """Return the frame that tells the client to drop what it has of this job."""
        told = _encode({"reason": resync.reason, "job_id": job})
        return b"event: resync\ndata: " + told + self._id(job, before)

    def _id(self, job: str, cursor: Cursor) -> bytes:
        """Move to this place. Return the line of the id, and the end of the frame."""
        self._move(job, cursor)
        first = self._at[job]
        named = [at for name, at in self._at.items() if name != job and name in self._named]
        line = b"~".join([first, *named])
        for name, at in reversed(self._at.items()):
            if len(line) + len(at) >= _LONGEST_ID:
                break
            if name != job and name not in self._named:
                line += b"~" + at
        return b"\nid: %s\n\n" % line

    def _move(self, job: str, cursor: Cursor) -> None:
        self._at.pop(job, None)
        self._at[job] = f"{self._named.get(job) or tag_of(job)}.{cursor}".encode()
        if len(self._at) > 3 * MOST_NAMES:  # the oldest would not fit into an id any more
            del self._at[next(name for name in self._at if name not in self._named)]


def job_state_frame(job: str, event: Event | None) -> bytes:
    """Return the frame of the state of one of several jobs."""
    state = None if event is None else _event_body(event)
    return b"event: state\ndata: %s\n\n" % _encode({"job_id": job, "state": state})


def refused_frame(job: str, reason: str) -> bytes:
    """Return the frame that tells the client that a job or a topic is not followed."""
    return b"event: refused\ndata: %s\n\n" % _encode({"job_id": job, "reason": reason})
