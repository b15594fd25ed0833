"""RabbitMQ: delay queues for messages that cannot be processed now.

A requeued message comes back at once, and a quorum queue counts that against its delivery limit.
So a copy of the message waits in a delay queue instead, and comes back to its queue from there:

    exchange oncekey.delay -> queue oncekey.delay.<seconds> -> exchange oncekey.back -> its queue

Both exchanges route by headers, so that the copy keeps its routing key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil, inf
from typing import Any, Final
from weakref import WeakKeyDictionary

from oncekey.errors import InProgressError
from oncekey.messages.limit import DeliveryLimit
from oncekey.messages.message import AMQP_WITHOUT_ID

_log = logging.getLogger("oncekey")

DELAY_EXCHANGE: Final = "oncekey.delay"
BACK_EXCHANGE: Final = "oncekey.back"
TRIES: Final = "oncekey-tries"
"""The header that counts how often the message was delayed."""
COUNT: Final = "oncekey-deliveries"
"""The header that sums up what a quorum queue had counted whenever the message was delayed."""
_QUEUE: Final = "oncekey-queue"
_SECONDS: Final = "oncekey-delay"

LONGEST_HOLD: Final = 600.0
"""Seconds: a third of the time after which RabbitMQ gives up a consumer that does not answer."""

_LONGEST: Final = 6
"""The longest delay is 2 ** 6 seconds."""
_PATIENCE: Final = 10.0
_TTL_IN_QUORUM_QUEUES: Final = (3, 10)
_USUAL_LIMIT: Final = 20
"""The delivery limit of a quorum queue, unless another one is set, since RabbitMQ 4."""

_delays: Final[WeakKeyDictionary[Any, _Delays]] = WeakKeyDictionary()
_held: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()


def came_back(delivered: Any) -> bool:
    """Return whether the broker has delivered the message before, so that it may count."""
    return bool(delivered.redelivered or _count(delivered))


def queue_of(delivered: Any) -> str:
    """Return the name of the queue that the message came from, or an empty string.

    Only a message that was published to its queue directly, or was delayed before, tells it.
    """
    known = (delivered.headers or {}).get(_QUEUE)
    if isinstance(known, str):
        return known
    return "" if delivered.exchange else delivered.routing_key or ""


def most_attempts(delivered: Any, arguments: Mapping[str, Any]) -> int | None:
    """Return how often the message may be begun if its queue would have given it up by now.

    Return None otherwise. A queue counts the deliveries of each delayed copy anew, so that it would
    go on for ever with a message that kills its consumers. `arguments` are those of the queue.
    """
    headers = delivered.headers or {}
    before = headers.get(COUNT)
    limit = _limit(arguments, _version(delivered.channel.connection))
    if not isinstance(before, int) or limit is None:
        return None
    return limit + 1 if before + _count(delivered) > limit else None


def limit_of(
    name: str, arguments: Mapping[str, Any], connection: Any = None
) -> DeliveryLimit | None:
    """Return the limit of redeliveries of a queue with these arguments, or None if none is known.

    The name is "" where it is not known, so that nothing can be delayed for the queue.
    """
    quorum = connection is not None and arguments.get("x-queue-type") == "quorum"
    limit = _limit(arguments, _version(connection) if quorum else ())
    if limit is None:
        return None
    # What is delayed in a queue of its own costs no delivery.
    return DeliveryLimit(name, limit, inf if name and not in_order(arguments) else LONGEST_HOLD)


def in_order(arguments: Mapping[str, Any]) -> bool:
    """Return whether a queue has a single active consumer, and so an order to keep.

    A delayed message would lose its place there.
    """
    return bool(arguments.get("x-single-active-consumer"))


def _limit(arguments: Mapping[str, Any], version: tuple[int, ...]) -> int | None:
    limit = arguments.get("x-delivery-limit")
    if limit is None and version >= (4, 0):
        limit = _USUAL_LIMIT
    return limit if isinstance(limit, int) and limit >= 0 else None


@contextmanager
def held(delivered: Any, prefetch: int | None) -> Iterator[bool]:
    """Count a message that waits here. Yield whether it may: at most half of the prefetch does."""
    channel = delivered.channel
    count = _held.get(channel, 0)
    if prefetch and count + 1 > prefetch // 2:
        yield False
        return
    _held[channel] = count + 1
    try:
        yield True
    finally:
        _held[channel] -= 1


async def put_back(delivered: Any, queue: str, why: Exception) -> bool:
    """Publish a copy of an aio-pika message that comes back to the queue later.

    Return whether the broker has confirmed it: then acknowledge the message. If a process dies
    between the two, there are two copies, which does no harm; the other order would lose it.
    """
    if not queue:
        return False
    try:
        connection = delivered.channel.connection
        delays = _delays.get(connection)
        if delays is None:
            delays = _delays[connection] = _Delays(connection)
        async with asyncio.timeout(_PATIENCE):
            await delays.publish(delivered, queue, _bucket(delivered, why))
    except Exception as error:  # noqa: BLE001 - aio-pika has many; the message is requeued instead
        _log.warning("a message could not be delayed, so it is held and requeued: %r", error)
        return False
    return True


def pause_before_requeue(why: Exception) -> float:
    """Return how many seconds to hold a message that cannot be delayed before it is requeued."""
    soon: float = getattr(why, "retry_after", 1.0)
    return min(getattr(why, "lease_left", None) or soon, LONGEST_HOLD)


def _bucket(delivered: Any, why: Exception) -> int:
    """Return the delay: twice as long each time, but not much longer than the lease."""
    power = min(_tries(delivered), _LONGEST)
    left = why.lease_left if isinstance(why, InProgressError) else None
    if left is not None:
        power = min(power, max(0, ceil(left) - 1).bit_length())
    return 1 << power


def _tries(delivered: Any) -> int:
    return _number(delivered, TRIES)


def _count(delivered: Any) -> int:
    """Return how often a quorum queue has delivered the message before."""
    return _number(delivered, "x-delivery-count")


def _number(delivered: Any, header: str) -> int:
    found = (delivered.headers or {}).get(header)
    return found if isinstance(found, int) else 0


def _version(connection: Any) -> tuple[int, ...]:
    """Return the version of the server as numbers, such as (4, 1)."""
    said = str(connection.server_properties.get("version", "")).split(".")
    return tuple(int(part) for part in said[:2] if part.isdigit())


class _Delays:
    """The delay queues, as far as they are known to exist on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._channel: Any = None
        self._known: set[object] = set()
        self._lock = asyncio.Lock()

    async def publish(self, delivered: Any, queue: str, seconds: int) -> None:
        # A channel of our own: an error closes it, and must not close the one that consumes.
        async with self._lock:
            if self._channel is None or self._channel.is_closed:
                self._known.clear()
                self._channel = await self._connection.channel()  # with confirms
            await self._declare(queue, seconds)
            channel = self._channel
        try:
            await channel.basic_publish(
                delivered.body,
                exchange=DELAY_EXCHANGE,
                routing_key=delivered.routing_key or "",
                properties=_copied(delivered, queue, seconds),
                mandatory=True,
            )
        except BaseException:
            self._known.clear()  # somebody may have deleted the queue
            raise

    async def _declare(self, queue: str, seconds: int) -> None:
        channel, known = self._channel, self._known
        if seconds not in known:
            for exchange in (DELAY_EXCHANGE, BACK_EXCHANGE):
                await channel.exchange_declare(exchange, exchange_type="headers", durable=True)
            name = f"{DELAY_EXCHANGE}.{seconds}"
            await channel.queue_declare(name, durable=True, arguments=self._arguments(seconds))
            await channel.queue_bind(name, DELAY_EXCHANGE, arguments=_where(_SECONDS, str(seconds)))
            known.add(seconds)
        if queue not in known:
            await channel.queue_bind(queue, BACK_EXCHANGE, arguments=_where(_QUEUE, queue))
            known.add(queue)

    def _arguments(self, seconds: int) -> dict[str, Any]:
        arguments = {"x-message-ttl": seconds * 1000, "x-dead-letter-exchange": BACK_EXCHANGE}
        if _version(self._connection) >= _TTL_IN_QUORUM_QUEUES:
            # Other queues may lose a message on its way back, should its queue be out of reach.
            arguments |= {
                "x-queue-type": "quorum",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
        return arguments


def _where(header: str, value: str) -> dict[str, str]:
    return {"x-match": "all", header: value}


def _copied(delivered: Any, queue: str, seconds: int) -> Any:
    """Return the properties of the copy: those of the message, without what its deliveries added.

    The broker would refuse the `user_id` of another connection. The message was delivered before
    its `expiration`, and does not expire any more.
    """
    headers = {
        name: value
        for name, value in (delivered.headers or {}).items()
        if name not in ("x-delivery-count", TRIES, _QUEUE, _SECONDS)
    }
    deaths = [one for one in headers.pop("x-death", None) or () if not _of_ours(one)]
    if deaths:  # retries of the user, who may count them
        headers["x-death"] = deaths
    headers |= {TRIES: _tries(delivered) + 1, _QUEUE: queue, _SECONDS: str(seconds)}
    if counted := _number(delivered, COUNT) + _count(delivered):
        headers[COUNT] = counted
    if not delivered.message_id:  # aiormq makes one up, which must not become the key
        headers[AMQP_WITHOUT_ID] = True
    copy = delivered.properties
    copy.headers, copy.expiration, copy.user_id, copy.delivery_mode = headers, None, None, 2
    return copy


def _of_ours(death: Any) -> bool:
    return str(death.get("queue", "")).startswith(f"{DELAY_EXCHANGE}.")
