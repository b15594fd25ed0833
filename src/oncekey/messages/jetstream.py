"""NATS JetStream: how long a message may wait here, and how its server is told that it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from oncekey.errors import ConfigurationError
from oncekey.messages.limit import DeliveryLimit

LONGEST_HOLD: Final = 3600.0
"""Seconds that a message waits here where JetStream gives up after so many deliveries."""

_SOON: Final = 1.0

_LOSES: Final = {
    "none": "its messages are never delivered again",
    "all": "an acknowledgement counts for all earlier messages",
}
"""What the policies of acknowledgement mean that do not fit an inbox."""


class ConsumerLimits(Struct, frozen=True):
    """The settings of a consumer that matter here. The defaults are those of the server."""

    ack_wait: float = 30.0
    """Seconds after which a message is delivered again, unless the server is told something."""
    max_deliver: int = -1
    """After how many deliveries the server gives up the message; -1 for never."""
    max_ack_pending: int = 1000
    ack_policy: str = "explicit"


class _Consumers:
    """What is known about the consumers of one connection."""

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str], ConsumerLimits] = {}
        self.waiting: dict[tuple[str, str], int] = {}


_known: Final[WeakKeyDictionary[Any, _Consumers]] = WeakKeyDictionary()


async def limits_of(delivered: Any) -> ConsumerLimits:
    """Return the limits of the consumer that got the message. Its server is asked once."""
    try:
        client, facts = delivered._client, delivered.metadata
        known = _known.setdefault(client, _Consumers()).limits
    except Exception:  # noqa: BLE001 - not a message of JetStream, or none of nats-py
        return ConsumerLimits()
    name = (facts.stream, facts.consumer)
    if name not in known:
        known[name] = ConsumerLimits()
        with suppress(Exception):  # without the permission to ask, the defaults must do
            info = await client.jetstream(timeout=_SOON).consumer_info(*name)
            said = info.config
            known[name] = ConsumerLimits(
                ack_wait=min(said.backoff or [said.ack_wait or ConsumerLimits().ack_wait]),
                max_deliver=said.max_deliver or -1,
                max_ack_pending=said.max_ack_pending or ConsumerLimits().max_ack_pending,
                ack_policy=policy_of(said),
            )
    return known[name]


def policy_of(config: Any) -> str:
    """Return the acknowledgement policy of a consumer's settings, in the words of the server."""
    said = getattr(config, "ack_policy", None)
    return str(getattr(said, "value", said) or ConsumerLimits().ack_policy)


def check_policy(policy: str) -> None:
    """Raise ConfigurationError if a message that is put back would be lost."""
    if policy in _LOSES:
        msg = (
            f"an inbox needs a consumer of JetStream with ack_policy 'explicit', and not "
            f"{policy!r}: {_LOSES[policy]}, so that a message in progress elsewhere would be lost"
        )
        raise ConfigurationError(msg)


def limit_of(place: str, max_deliver: Any) -> DeliveryLimit | None:
    """Return the limit of redeliveries of a consumer, or None if there is none."""
    if not isinstance(max_deliver, int) or max_deliver < 1:
        return None
    return DeliveryLimit(place, max_deliver - 1, LONGEST_HOLD)


@contextmanager
def patience(delivered: Any, limits: ConsumerLimits, wait: float) -> Iterator[float]:
    """Yield how many seconds the message may wait here while it is in progress elsewhere.

    Where deliveries are limited that is long, because each that is put back counts; but at most
    half of the messages that the server hands out unacknowledged wait so long.
    """
    if limits.max_deliver < 1:
        yield wait
        return
    facts = delivered.metadata
    waiting, name = _known[delivered._client].waiting, (facts.stream, facts.consumer)
    count = waiting.get(name, 0)
    waiting[name] = count + 1
    try:
        yield LONGEST_HOLD if count + 1 <= limits.max_ack_pending // 2 else wait
    finally:
        waiting[name] -= 1


def delay_of(limits: ConsumerLimits, why: Exception) -> float:
    """Return after how many seconds the server should deliver a message that is put back."""
    soon: float = getattr(why, "retry_after", _SOON)
    if limits.max_deliver < 1:
        return soon
    return getattr(why, "lease_left", None) or soon


@asynccontextmanager
async def beating(tell: Callable[[], Awaitable[object]], ack_wait: float) -> AsyncIterator[None]:
    """Tell JetStream during the block that the message is in progress.

    Otherwise it would deliver the message again.
    """
    beats = asyncio.create_task(_beat(tell, ack_wait / 3))
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.wait([beats])


async def _beat(tell: Callable[[], Awaitable[object]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        with suppress(Exception):  # a broker that is not told delivers again, which is harmless
            await tell()
