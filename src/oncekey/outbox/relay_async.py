"""The relay: it sends what was committed to the outbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from random import uniform
from time import monotonic
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

from msgspec import Struct

from oncekey.compat import call_blocking_async
from oncekey.errors import ConfigurationError, StoreError
from oncekey.messages.statements import POSTGRES
from oncekey.once import Once
from oncekey.outbox.commit_listener import CommitListener
from oncekey.outbox.errors import MessageRefusedError, NotConfirmedError, UndeliverableError
from oncekey.outbox.outbox_async import own_connections
from oncekey.outbox.routes import checked_patterns, have_in_common, matches
from oncekey.outbox.table import Failure, Figures, OutboxMessage, OutboxTable
from oncekey.outbox.targets import FunctionTarget, Target, target_of
from oncekey.policy import Duration, seconds

_log = logging.getLogger("oncekey.outbox")

Happened = Literal[
    "sent",  # a target has confirmed it
    "failed",  # a try that counts
    "unreachable",  # a try that does not count: the target is out of reach
    "dead",  # it is not tried any more
    "late",  # the lease was over before the mark: another relay has the message
    "purged",  # sent long ago, and deleted
]
Where = str | Target | Callable[[OutboxMessage], Any]

_AT_ONCE: Final = 2
"""So many batches are under way: while one is published the next one is leased."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0
_LONGEST_REST: Final = 15.0
_PURGE_EVERY: Final = 60.0
_PURGE_BATCH: Final = 1000
_SOON: Final = 2
_SPREAD: Final = 1.1
"""How much longer a pause of a target may be, so that messages part that failed together."""
_SLACK: Final = 2.0
"""Seconds for which others tell longer than we rely on it."""
OUT_OF_REACH: Final = (OSError, TimeoutError)
"""What targets raise when they are out of reach. A ConnectionError is an OSError."""


class RelayEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to `count` messages."""

    name: Happened
    count: int
    to: str = ""
    """The route; empty for what has none."""


class _Route:
    """A pattern of destinations, and the target of those that fit."""

    def __init__(self, pattern: str, target: Target) -> None:
        self.pattern = pattern
        self.target = target
        self.pauses: Sequence[float] | None = getattr(target, "pauses", None)
        self.windows: Mapping[str, float] = getattr(target, "windows", {})
        self.compared: set[str] = set()
        self.outages = 0
        self.rests_until = 0.0

    def rest(self) -> None:
        """Leave a target alone that is out of reach, longer each time."""
        self.rests_until = monotonic() + _pause(self.outages, _LONGEST_REST)
        self.outages += 1

    def pause(self, tries: int, error: BaseException) -> float:
        """Return for how many seconds a message waits that has failed so often."""
        asked = error.retry_after if isinstance(error, NotConfirmedError) else 0.0
        if self.pauses is None:
            return max(_pause(tries, _LONGEST_PAUSE), min(asked, _LONGEST_PAUSE))
        pause = self.pauses[tries - 1]
        return uniform(1.0, _SPREAD) * max(pause, min(asked, max(self.pauses)))  # noqa: S311 - a pause is no secret

    def answered(self) -> None:
        """Take note that the target is within reach."""
        self.outages, self.rests_until = 0, 0.0


class _Batch(NamedTuple):
    """Messages that were leased together."""

    messages: list[OutboxMessage]
    nonce: str
    lease_end: float


class _NotBegunError(Exception):
    """There was not enough of the lease left to begin."""


class AsyncRelay:
    """Sends the messages of an outbox, and marks them when their targets have confirmed them.

    Any number of relays may work on one outbox. A message that a relay had when it died is sent by
    another one when the lease is over.
    """

    def __init__(
        self,
        source: str | Once,
        to: Where | Mapping[str, Where],
        *,
        batch: int = 100,
        lease: Duration = "30s",
        timeout: Duration = "10s",
        max_tries: int = 20,
        on_dead: Literal["block", "skip"] = "block",
        keep: Duration = "1d",
        poll: Duration = "1s",
        observers: Iterable[Callable[[RelayEvent], object]] = (),
    ) -> None:
        """Configure the relay. The first use opens the connections.

        `source` is the URL of the database with the outbox. `to` is a target: a URL of NATS,
        RabbitMQ or Redis, an object of `oncekey.outbox.targets`, or a function. A mapping has a
        target for each pattern of destinations, as `"orders.*"`; the first that fits counts.
        Messages that fit none are left to other relays.

        A message is taken for `lease`, and publishing is given up after `timeout`. After
        `max_tries` failures it is dead; of its key nothing is sent then until it is revived or
        dropped, unless `on_dead="skip"` gives up the order. What was sent is kept for `keep`.
        """
        self.table = OutboxTable(own_connections(source))
        self._routes = _routes(to)
        self._batch = _positive(batch, "batch")
        self._lease = seconds(lease, "lease")
        self._timeout = seconds(timeout, "timeout")
        if self._lease < 2 * self._timeout:
            msg = f"the lease of {lease} must be at least twice the timeout of {timeout}"
            raise ConfigurationError(msg)
        self._max_tries = _positive(max_tries, "max_tries")
        if on_dead not in ("block", "skip"):
            raise ConfigurationError(f"on_dead must be 'block' or 'skip', not {on_dead!r}")
        self._past_dead = on_dead == "skip"
        self._keep = seconds(keep, "keep", zero=True)
        self._poll = seconds(poll, "poll")
        self._observers = [*observers]
        for observer in self._observers:
            if not callable(observer):
                msg = f"an observer must be a function of what happened, not {observer!r}"
                raise ConfigurationError(msg)
        self._behind = ""
        self._purge_at, self._outages = 0.0, 0
        self._listener: CommitListener | None = None
        self._told_until = 0.0
        self._stopping = False
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Send messages until `stop` is called. What is under way then is finished first.

        A database or a target that is out of reach is tried again until it is back.
        """
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        under_way: set[asyncio.Task[int]] = set()
        own: Any = self.table.own
        if own.dialect is POSTGRES:
            self._listener = CommitListener(own.target, self._wake.set)
            self._listener.start()
        try:
            while not self._stopping:
                leased = await self._next()
                if leased is None:
                    continue
                if leased.messages:
                    under_way.add(asyncio.create_task(self._send(leased)))
                    await self._be_told(0.0)
                if len(under_way) >= _AT_ONCE or (under_way and not leased.messages):
                    done, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
                elif not leased.messages and not await self._be_told(self._poll):
                    await self._sleep(self._poll)
        finally:
            if self._listener is not None:
                await self._listener.aclose()
            if under_way:
                await asyncio.wait(under_way)

    async def drain(self) -> int:
        """Send what may be sent now. Return how many messages were sent.

        What fails is left for later. For tests, and for a relay that a timer starts.
        """
        total = 0
        while not self._stopping:
            leased = await self._take()
            if not leased.messages:
                break
            total += await self._send(leased)
        return total

    def stop(self) -> None:
        """End `run` when what is under way is finished. May be called from any thread."""
        self._stopping = True
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with suppress(RuntimeError):  # the loop is closed, so that nothing runs any more
                loop.call_soon_threadsafe(wake.set)

    async def figures(self) -> Figures:
        """Return how much waits. The age of the oldest message is what to be alarmed by."""
        return await call_blocking_async(self.table.figures)

    async def aclose(self) -> None:
        """Close the connections. The next use opens new ones."""
        for route in self._routes:
            await route.target.aclose()
        await call_blocking_async(self.table.own.close)

    async def _next(self) -> _Batch | None:
        """Return messages that are to be sent now, or None after a pause for the database."""
        try:
            if monotonic() >= self._purge_at:
                await self._purge()
                self._purge_at = monotonic() + _PURGE_EVERY
            leased = await self._take()
        except StoreError as error:
            if isinstance(error, ConfigurationError):  # it will never let us in
                raise
            _log.warning("the outbox is out of reach: %s", error)
            await self._sleep(_pause(self._outages, _LONGEST_REST))
            self._outages += 1
            return None
        self._outages = 0
        return leased

    async def _take(self) -> _Batch:
        """Lease messages whose targets are within reach."""
        leased_at, nonce = monotonic(), uuid4().hex
        routes, resting = self._within_reach(leased_at)
        if not routes:
            return _Batch([], nonce, leased_at)
        messages = await call_blocking_async(
            self.table.lease,
            nonce,
            routes=routes,
            resting=resting,
            limit=self._batch,
            lease=self._lease,
            behind=self._behind,
            past_dead=self._past_dead,
        )
        keys = [one.key for one in messages if one.key is not None]
        self._behind = max(keys) if len(keys) >= self._batch else ""
        return _Batch(messages, nonce, leased_at + self._lease)

    def _within_reach(self, now: float) -> tuple[list[str], list[str]]:
        """Return patterns of what may be leased, and of what may not though one of them names it.

        The first route that names a destination counts. So a route that rests holds back nothing of
        those before it. Where it has destinations in common with one before it and one behind it,
        its messages are leased all the same, and tried in vain.
        """
        routes: list[str] = []
        resting: list[str] = []
        for one in self._routes:
            if one.rests_until <= now:
                routes.append(one.pattern)
            elif not any(have_in_common(one.pattern, before) for before in routes):
                resting.append(one.pattern)
        return routes, resting

    async def _send(self, batch: _Batch) -> int:
        """Publish the messages, then mark them. Return how many were sent.

        No transaction is open meanwhile.
        """
        groups: dict[_Route, list[OutboxMessage]] = {}
        for message in batch.messages:
            route = next(one for one in self._routes if matches(one.pattern, message.to))
            groups.setdefault(route, []).append(message)
        published = (self._publish(*group, batch.lease_end) for group in groups.items())
        sent: list[OutboxMessage] = []
        failures: list[Failure] = []
        for (route, messages), errors in zip(
            groups.items(), await asyncio.gather(*published), strict=True
        ):
            for message, error in zip(messages, errors, strict=True):
                if error is None:
                    sent.append(message)
                else:
                    failures.append(self._failure(route, message, error))
        marked = await self._mark(self.table.sent, batch, sent)
        self._tell("sent", marked)
        await self._mark(self.table.failed, batch, failures)
        return marked

    async def _publish(
        self, route: _Route, messages: list[OutboxMessage], lease_end: float
    ) -> Sequence[BaseException | None]:
        """Publish messages of one route. Return None for each that is confirmed, or an error."""
        deadline = monotonic() + self._timeout
        if deadline > lease_end:  # it could be confirmed when another relay has it already
            return [_NotBegunError()] * len(messages)
        errors: Sequence[BaseException | None]
        try:
            async with asyncio.timeout(self._timeout):
                errors = await route.target.publish(messages, deadline)
            if len(errors) != len(messages):
                msg = f"{route.target!r} said what became of {len(errors)} of {len(messages)}"
                raise RuntimeError(msg)  # noqa: TRY301 - it is treated as what a target raises
        except Exception as error:  # noqa: BLE001 - a target may raise anything; others flow
            errors = [error] * len(messages)
        if all(isinstance(error, OUT_OF_REACH) for error in errors):
            route.rest()
            _log.warning("the target of %s is out of reach: %s", route.pattern, _words(errors[0]))
        else:
            route.answered()
            self._compare(route)
        return errors

    def _compare(self, route: _Route) -> None:
        """Say once of each broker that it may not recognise what is sent again after a failure."""
        for name in route.windows.keys() - route.compared:
            route.compared.add(name)
            again = self._lease + sum(
                min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**tries) for tries in range(self._max_tries)
            )
            if route.windows[name] < again:
                _log.warning(
                    "%s remembers ids for %d s, and a message may be sent again for %d s after it "
                    "was sent first: let its consumers use an inbox, or make its window longer",
                    *(name, route.windows[name], again),
                )

    def _failure(self, route: _Route, message: OutboxMessage, error: BaseException) -> Failure:
        if isinstance(error, _NotBegunError):
            return Failure(message=message, tries=message.tries, pause=0.0)
        if isinstance(error, OUT_OF_REACH):
            self._tell("unreachable", 1, route.pattern)
            rest = max(0.0, route.rests_until - monotonic())
            return Failure(
                message=message,
                tries=message.tries,
                pause=rest or _pause(_SOON, _LONGEST_REST),
                error=_words(error),
                unknown=True,
            )
        tries = message.tries + 1
        most = self._max_tries if route.pauses is None else len(route.pauses) + 1
        dead = tries >= most or isinstance(error, UndeliverableError)
        _log.log(
            logging.ERROR if dead else logging.WARNING,
            "message %s to %s failed, try %d of %d: %s",
            *(message.id, message.to, tries, most, _words(error)),
        )
        self._tell("failed", 1, route.pattern)
        if dead:
            self._tell("dead", 1, route.pattern)
        return Failure(
            message=message,
            outcome="dead" if dead else "pending",
            tries=tries,
            pause=0.0 if dead else route.pause(tries, error),
            error=_words(error),
            unknown=not isinstance(error, MessageRefusedError),
        )

    async def _mark(
        self, mark: Callable[[str, list[Any]], set[int]], batch: _Batch, rows: list[Any]
    ) -> int:
        """Write what became of messages, until the lease is over. Return for how many it counts."""
        if not rows:
            return 0
        tries = 0
        found: set[int] | None = None
        while found is None:
            try:
                found = await call_blocking_async(mark, batch.nonce, rows)
            except StoreError as error:
                _log.warning("%d messages could not be marked: %s", len(rows), error)
                if monotonic() > batch.lease_end:
                    return 0
                await asyncio.sleep(_pause(tries, _LONGEST_REST))
                tries += 1
        late = len(rows) - len(found)
        if late and not tries:  # after a lost answer the rows may have been marked by us
            _log.warning("%d messages were marked too late: another relay has taken them", late)
            self._tell("late", late)
        return len(rows) if tries else len(found)

    async def _be_told(self, wanted: float) -> bool:
        """Ask transactions to tell of their messages for a while, or no more.

        Return whether they will and did not before: then there may be some that have not.
        """
        told = self._told_until > monotonic()
        listening = self._listener is not None and self._listener.listening
        if told == bool(wanted) or not listening:
            return False
        try:
            await call_blocking_async(self.table.listen, wanted and wanted + _SLACK)
        except StoreError as error:
            _log.warning("the relay is not told of messages: %s", error)
            return False
        self._told_until = wanted and monotonic() + wanted
        return bool(wanted)

    async def _purge(self) -> None:
        while True:
            count = await call_blocking_async(self.table.purge, self._keep, _PURGE_BATCH)
            self._tell("purged", count)
            if count < _PURGE_BATCH:
                return

    async def _sleep(self, longest: float) -> None:
        """Sleep until somebody wakes us, or `longest` seconds are over."""
        assert self._wake is not None  # noqa: S101 - `run` has made it
        with suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._wake.wait()
        self._wake.clear()

    def _tell(self, name: Happened, count: int, to: str = "") -> None:
        if not count:
            return
        event = RelayEvent(name=name, count=count, to=to)
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001 - an observer must not stop the relay
                _log.exception("an observer failed on %s", name)


def _routes(to: Where | Mapping[str, Where]) -> list[_Route]:
    given = to if isinstance(to, Mapping) else {"*": to}
    if not given:
        raise ConfigurationError("a relay needs a target, as in to='nats://localhost'")
    return [
        _Route(pattern, _target(where))
        for pattern, where in zip(checked_patterns(given), given.values(), strict=True)
    ]


def _target(where: object) -> Target:
    if isinstance(where, str):
        return target_of(where)
    if isinstance(where, Target) and not isinstance(where, type):
        if not iscoroutinefunction(where.publish):
            msg = f"publish of {type(where).__name__} must be a coroutine function"
            raise ConfigurationError(msg)
        return where
    if callable(where) and not isinstance(where, type):
        return FunctionTarget(where)
    msg = f"a target is a URL, an object of oncekey.outbox.targets or a function, not {where!r}"
    raise ConfigurationError(msg)


def _positive(value: object, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ConfigurationError(f"{name} must be a whole number above zero, not {value!r}")


def _pause(tries: int, longest: float) -> float:
    """Return a pause that is twice as long with each try, at random, so that relays part."""
    return uniform(0.5, 1.0) * min(longest, _FIRST_PAUSE * 2.0 ** min(tries, 10))  # noqa: S311 - a pause is no secret


def _words(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
