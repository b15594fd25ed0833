"""The configuration of one inbox: its rules, its table or store, and its observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from oncekey.core.key import checked_scope
from oncekey.errors import ConfigurationError
from oncekey.functions import is_async
from oncekey.messages.connections.base import connections_of
from oncekey.messages.keys import KeyOfMessage, OnMissingKey
from oncekey.messages.limit import DeliveryLimit, warn_of_limit
from oncekey.messages.rules import INBOX, DeadLetter, Fingerprint, InboxRules, inbox_terms
from oncekey.messages.schema import INBOX_SCHEMA
from oncekey.messages.table import Table
from oncekey.observe import Observer
from oncekey.once import Once
from oncekey.policy import (
    FUNCTION,
    SECOND,
    Duration,
    Policy,
    PolicyFields,
    microseconds,
    seconds,
    terms,
)

T = TypeVar("T")

DeadLetterBox = Callable[[DeadLetter], Any]


class InboxConfig(Struct, frozen=True, kw_only=True):
    """The configuration of an inbox for one consumer."""

    rules: InboxRules
    once: Once
    """The `Once` with the engine for leases and the observers."""
    table: Table | None
    """The table, or None if marks are records of a store without tables, such as Redis."""
    box: DeadLetterBox | None
    lock_timeout: int | None
    """The time-out for locks in milliseconds."""
    limits: set[DeliveryLimit] = field(default_factory=set)
    """The limits of brokers that were looked at."""

    def check_limit(self, limit: DeliveryLimit) -> None:
        """Log a warning, once, if a broker gives a message up before its lease is over."""
        if limit not in self.limits:
            self.limits.add(limit)
            warn_of_limit(limit, self.rules.terms.lease / SECOND)

    def tables(self, what: str) -> Table:
        """Return the table. Raise ConfigurationError if there is none."""
        if self.table is None:
            msg = (
                f"{what} needs the table processed_messages in PostgreSQL, MySQL, MariaDB or "
                f"SQLite, but this inbox keeps its marks in {type(self.once.store).__name__}, "
                f"which shares no transaction with your data"
            )
            raise ConfigurationError(msg)
        return self.table

    def for_consumer(self, consumer: str) -> InboxConfig:
        """Return the same config for another consumer."""
        return replace(self, rules=replace(self.rules, **_whose(consumer, self.table)))


class InboxSettings(Struct, kw_only=True):
    """The options of an inbox, apart from its target and its consumer."""

    key: KeyOfMessage
    on_missing_key: OnMissingKey
    fingerprint: Fingerprint | None
    dead_letter: DeadLetterBox | None
    lock_timeout: Duration | None
    grace: Duration
    observers: Iterable[Observer] | None
    policy: Policy | None
    fields: PolicyFields


def configure(target: str | Once, consumer: str, said: InboxSettings) -> InboxConfig:
    """Return the config for a target. Open nothing."""
    if said.dead_letter is not None and not callable(said.dead_letter):
        msg = f"dead_letter must be a function of the dead letter, not {said.dead_letter!r}"
        raise ConfigurationError(msg)
    own = connections_of(target, INBOX_SCHEMA)
    if own is not None and own.dialect.name == "sqlite" and said.lock_timeout is not None:
        msg = (
            "lock_timeout is for PostgreSQL and MySQL; on SQLite set the timeout of your own "
            "connection"
        )
        raise ConfigurationError(msg)
    table = (
        None if own is None else Table(own, microseconds(seconds(said.grace, "grace", zero=True)))
    )
    once = _once(target, table, said)
    given = once.having(policy=said.policy, fields=said.fields).policy
    policy = given.over(INBOX)
    limit = None if said.lock_timeout is None else seconds(said.lock_timeout, "lock_timeout")
    return InboxConfig(
        rules=InboxRules(
            **_whose(consumer, table),
            terms=inbox_terms(terms(policy)),
            mark_lease=terms(given.over(FUNCTION)).lease,
            strategy=said.key,
            on_missing=said.on_missing_key,
            fingerprint=said.fingerprint,
            max_attempts=policy.max_attempts,
        ),
        once=once,
        table=table,
        box=said.dead_letter,
        lock_timeout=None if limit is None else max(1, round(limit * 1000)),
    )


def refuse_coroutine_function(box: object) -> None:
    """Raise ConfigurationError if code that blocks could not call the dead letter function."""
    if is_async(box):
        msg = "nobody would await dead_letter, which is a coroutine function: use AsyncInbox"
        raise ConfigurationError(msg)


def _whose(consumer: str, table: Table | None) -> dict[str, str]:
    """Return the name of the consumer and the scope of its keys."""
    if not consumer or checked_scope(consumer) is None:
        msg = "an inbox needs the name of its consumer, as in consumer='billing'"
        raise ConfigurationError(msg)
    return {
        "consumer": consumer,
        "scope": consumer if table is not None else f"inbox:{consumer}",
    }


def _once(target: str | Once, table: Table | None, said: InboxSettings) -> Once:
    if not isinstance(target, Once):
        return Once(target if table is None else table, observers=said.observers, cache=False)
    if table is None:
        return target
    core = target.core
    told = core.observers.everybody if said.observers is None else said.observers
    return Once(table, policy=target.policy, observers=told, cache=False, active=target.active)
