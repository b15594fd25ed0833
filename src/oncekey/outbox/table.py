"""The table `outbox_messages` as relays see it, on connections of the outbox itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct, json

from oncekey.messages.connections.base import Connections
from oncekey.messages.statements import MYSQL, Values, as_micros, as_text
from oncekey.outbox.row import OutboxRow
from oncekey.outbox.statements import outbox_statements
from oncekey.policy import SECOND

_LONGEST_ERROR: Final = 1000
_ENTRIES: Final = 1000


class OutboxMessage(Struct, frozen=True, kw_only=True):
    """A message of the outbox that is to be sent, as targets get it."""

    id: str
    """The same in every try. Consumers know by it what they have seen."""
    to: str
    key: str | None = None
    type: str = ""
    attributes: dict[str, Any]
    body: bytes
    tries: int = 0
    """How often sending has failed."""
    number: int = 0
    token: int = 0


class Failure(Struct, frozen=True, kw_only=True):
    """What becomes of a message that was not sent."""

    message: OutboxMessage
    outcome: Literal["pending", "dead"] = "pending"
    tries: int
    pause: float
    """After how many seconds it may be taken again."""
    error: str | None = None
    unknown: bool = False
    """Whether the target may have it all the same."""


class Figures(Struct, frozen=True, kw_only=True):
    """How much waits in an outbox."""

    pending: int
    oldest: float
    """The age of the oldest message that waits, in seconds; 0 if none does."""
    dead: int
    sent: int = 0
    """How many were sent, and are still in the table."""


class Waiting(Struct, frozen=True, kw_only=True):
    """A message that is not sent yet, without its body."""

    id: str
    to: str
    key: str | None
    type: str
    tries: int
    error: str
    """Why the last try failed; empty if there was none."""
    unknown: bool
    created: float
    """When it was put, in seconds since 1970."""


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message that is not tried any more."""

    message: OutboxMessage
    error: str
    unknown: bool
    """Whether a try ended without an answer, so that the target may have the message."""
    created: float
    """When it was put, in seconds since 1970."""
    died: float
    """When its last try failed."""


class OutboxTable:
    """The statements of relays. Each of them is a transaction of its own."""

    def __init__(self, own: Connections) -> None:
        """Take the connections."""
        self.own = own
        self._dialect = own.dialect
        self._sql = outbox_statements(own.dialect)

    def lease(
        self,
        nonce: str,
        *,
        routes: Iterable[str],
        resting: Iterable[str],
        limit: int,
        lease: float,
        behind: str,
        past_dead: bool,
    ) -> list[OutboxMessage]:
        """Take messages that may be sent now, in the order of their numbers.

        There are at most `limit` without a key, and as many keys that sort after `behind`.
        """
        where = {"routes": self._patterns(routes), "resting": self._patterns(resting)}
        values = partial(
            self._dialect.values,
            {"lease": round(lease * SECOND)},
            nonce=nonce,
            limit=limit,
            behind=behind,
            **where,
        )
        self.own.identity()
        if self._dialect is MYSQL:
            found = self._found(limit, behind, where, past_dead=past_dead)
            if not found:
                return []
            values = partial(values, batch=_json({"n": number} for number in sorted(found)))
        statement = self._sql.lease_past_dead if past_dead else self._sql.lease
        return sorted(map(_leased, self.own.run(statement, values)), key=lambda one: one.number)

    def _found(
        self, limit: int, behind: str, where: dict[str, Any], *, past_dead: bool
    ) -> list[int]:
        """Return the numbers of messages that may be sent now, as MySQL looks for them.

        `_ENTRIES` of the index are looked at with one question, and all of them with several.
        """
        values = self._dialect.values({}, limit=limit, **where)
        found: list[int] = [number for (number,) in self.own.run(self._sql.free, values)]
        heads = self._sql.heads_past_dead if past_dead else self._sql.heads
        most, seen = limit + len(found), _ENTRIES
        while len(found) < most and seen == _ENTRIES:
            values = self._dialect.values({}, limit=_ENTRIES, behind=behind, **where)
            keys = self.own.run(heads, values)
            found += [number for number, _, _, may in keys if may][: most - len(found)]
            seen = sum(entries for _, _, entries, _ in keys)
            behind = keys[-1][1] if keys else behind
        return found

    def sent(self, nonce: str, messages: Iterable[OutboxMessage]) -> set[int]:
        """Mark messages as sent. Return the numbers of those that this relay still had."""
        batch = [{"n": one.number, "t": one.token} for one in messages]
        return self._mark(self._sql.sent, nonce, batch)

    def failed(self, nonce: str, failures: Iterable[Failure]) -> set[int]:
        """Give messages back. Return the numbers of those that this relay still had."""
        batch = [
            {
                "n": one.message.number,
                "t": one.message.token,
                "pause": one.pause,
                "outcome": one.outcome,
                "failures": one.tries,
                "why": None if one.error is None else one.error[:_LONGEST_ERROR],
                "doubt": one.unknown,
            }
            for one in failures
        ]
        return self._mark(self._sql.failed, nonce, batch)

    def listen(self, wanted: float) -> None:
        """Ask transactions to tell of their messages for so many seconds; 0 to be told no more."""
        values = partial(self._dialect.values, {"wanted": round(wanted * SECOND)})
        self.own.run(self._sql.listening, values)

    def purge(self, keep: float, limit: int) -> int:
        """Delete at most `limit` messages that were sent `keep` seconds ago. Return how many."""
        self.own.identity()
        values = partial(self._dialect.values, {"keep": round(keep * SECOND)}, limit=limit)
        return len(self.own.run(self._sql.purge, values))

    def figures(self) -> Figures:
        """Return how much waits."""
        self.own.identity()
        ((pending, oldest, now, dead, sent),) = self.own.run(
            self._sql.figures, self._dialect.values({})
        )
        age = max(0, as_micros(now) - as_micros(oldest)) / SECOND if pending else 0.0
        return Figures(pending=pending, oldest=age, dead=dead, sent=sent)

    def waiting(self, limit: int) -> list[Waiting]:
        """Return messages that are not sent yet, the oldest first."""
        self.own.identity()
        rows = self.own.run(self._sql.waiting, self._dialect.values({}, limit=limit))
        return [_waiting(row) for row in rows]

    def dead(self, limit: int, behind: int = 0, name: str = "") -> list[DeadLetter]:
        """Return dead messages in the order of their numbers, from the one after `behind` on.

        With a name, only the message with this id.
        """
        self.own.identity()
        values = self._dialect.values({}, limit=limit, behind=behind, message_id=name)
        return [_dead(row) for row in self.own.run(self._sql.dead, values)]

    def revive(self, message: OutboxMessage) -> bool:
        """Let a dead message be tried again, from the start. Return whether it was dead."""
        return self._decide(self._sql.revive, message)

    def drop(self, message: OutboxMessage) -> bool:
        """Delete a dead message. Return whether it was dead."""
        return self._decide(self._sql.drop, message)

    def edit(self, message: OutboxMessage, given: OutboxRow) -> bool:
        """Put another message where a dead one is, to be sent. Return whether it was dead."""
        return self._decide(
            self._sql.edit,
            message,
            message_id=given.id,
            destination=given.to,
            message_type=given.type,
            attributes=given.attributes.decode(),
            body=given.body,
        )

    def _decide(self, statement: str, message: OutboxMessage, **further: Any) -> bool:
        self.own.identity()
        values = self._dialect.values({}, number=message.number, token=message.token, **further)
        return bool(self.own.run(statement, values))

    def _mark(self, statement: str, nonce: str, batch: list[dict[str, Any]]) -> set[int]:
        def values() -> Values:
            given = self._dialect.values({}, nonce=nonce)
            rows = batch
            if self._dialect.name == "sqlite" and statement == self._sql.failed:
                # There a pause is given as the moment of its end.
                now = given["now_us"]
                rows = [
                    {**one, "pause": as_text(now + round(one["pause"] * SECOND))} for one in batch
                ]
            return {**given, **self._dialect.values({}, batch=_json(rows))}

        return {number for (number,) in self.own.run(statement, values)}

    def _patterns(self, patterns: Iterable[str]) -> Any:
        if self._dialect.name == "sqlite":
            return _json(map(_glob, patterns))
        found = map(_like, patterns)
        return _json(found) if self._dialect is MYSQL else [*found]


def _json(rows: Iterable[Any]) -> str:
    return json.encode([*rows]).decode()


def _leased(row: Sequence[Any]) -> OutboxMessage:
    number, token, name, to, key, kind, attributes, body, tries = row
    return OutboxMessage(
        id=name,
        to=to,
        key=key,
        type=kind,
        attributes=json.decode(attributes),
        body=bytes(body),
        tries=tries,
        number=number,
        token=token,
    )


def _waiting(row: Sequence[Any]) -> Waiting:
    name, to, key, kind, tries, error, unknown, created = row
    return Waiting(
        id=name,
        to=to,
        key=key,
        type=kind,
        tries=tries,
        error=error or "",
        unknown=bool(unknown),
        created=as_micros(created) / SECOND,
    )


def _dead(row: Sequence[Any]) -> DeadLetter:
    *message, error, unknown, created, died = row
    return DeadLetter(
        message=_leased(message),
        error=error or "",
        unknown=bool(unknown),
        created=as_micros(created) / SECOND,
        died=as_micros(died) / SECOND,
    )


def _like(pattern: str) -> str:
    """Return the pattern for LIKE, which has other signs for any text and any character."""
    start = pattern.removesuffix("*")
    plain = start.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{plain}%" if pattern.endswith("*") else plain


def _glob(pattern: str) -> str:
    """Return the pattern for GLOB, where a character is plain in brackets."""
    start = pattern.removesuffix("*").replace("[", "[[]").replace("?", "[?]")
    return f"{start}*" if pattern.endswith("*") else start
