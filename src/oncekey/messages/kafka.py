"""Kafka: a loop over the records of a consumer that commits each when it is done.

    async for taken in records(consumer):                     # aiokafka or confluent-kafka
        async with taken as message:
            async with inbox.leased(message) as delivery: ...

Records are taken one at a time. The consumer must not commit by itself (`enable_auto_commit=False`,
`enable.auto.commit: False`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final, Protocol

from msgspec import Struct

from oncekey.errors import ConfigurationError
from oncekey.messages.acknowledge import NEVER, NOT_NOW
from oncekey.messages.message import Message, message_of

_log = logging.getLogger("oncekey")

_POLL: Final = 0.5
"""Seconds that a poll waits for a record, and those between two polls while one is processed."""
_PAUSE: Final = 1.0
"""Seconds until a record comes again whose block has failed."""

_PASSING: Final = {
    "_PARTITION_EOF": logging.DEBUG,
    "_MAX_POLL_EXCEEDED": logging.WARNING,
    "_ALL_BROKERS_DOWN": logging.WARNING,
    "_TRANSPORT": logging.WARNING,
    "_TIMED_OUT": logging.WARNING,
}
"""What a poll of confluent-kafka reports and librdkafka gets over by itself; how it is logged."""

Partition = tuple[str, int]
"""A topic, and the number of a partition of it."""


class _Client(Protocol):
    """What the loop asks of a client of Kafka."""

    def assigned(self) -> set[Partition]:
        """Return the partitions that this consumer has now."""
        ...

    def pause(self, places: Collection[Partition]) -> None:
        """Let no poll return a record of these partitions, which this consumer must have."""
        ...

    def resume(self, places: Collection[Partition]) -> None:
        """Undo that."""
        ...

    def position(self, record: Any) -> tuple[Partition, int]:
        """Return the partition and the offset of a record."""
        ...

    async def poll(self, seconds: float) -> Any:
        """Return the next record, or None if there is none for so long."""
        ...

    async def seek(self, place: Partition, offset: int) -> None:
        """Let the record at the offset be the next of the partition."""
        ...

    async def commit(self, place: Partition, offset: int) -> None:
        """Let the record at the offset be the first for whoever gets the partition."""
        ...


def records(consumer: Any) -> AsyncIterator[AbstractAsyncContextManager[Message]]:
    """Iterate over the records of a subscribed consumer of aiokafka or confluent-kafka.

    Each is a block with the message. Its offset is committed when the block ends. After an error it
    comes again, and the error is raised. A record that is in progress elsewhere comes again, too,
    but nothing is raised: its partition is paused, and the others go on. A record without a usable
    key is logged and passed over. While a block runs the consumer is polled, so that it is not
    taken for dead.

    Enter the block of every record, and end it before the next one is asked for. Otherwise
    ConfigurationError is raised, since the next commit would pass over the record.
    """
    return _Loop(_client(consumer)).blocks()


def _client(consumer: Any) -> _Client:
    for kind in type(consumer).__mro__:
        if kind.__module__.startswith("aiokafka."):
            return _Aiokafka(consumer)
        if kind.__module__.startswith(("confluent_kafka", "cimpl")):
            return _Confluent(consumer)
    msg = (
        f"records is for a consumer of aiokafka or a blocking one of confluent-kafka, not for a "
        f"{type(consumer).__name__}"
    )
    raise ConfigurationError(msg)


class _Hold(Struct, frozen=True):
    """A paused partition: when it goes on, and with the record at which offset."""

    until: float
    offset: int


class _Loop:
    """The consumer, and the partitions that are paused until a record may come again."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._held: dict[Partition, _Hold] = {}
        self._assigned: set[Partition] = set()
        self._given: Any = None
        """The record whose block has not ended yet."""

    async def blocks(self) -> AsyncIterator[AbstractAsyncContextManager[Message]]:
        while True:
            await self._go_on()
            record = await self._poll(self._held, _POLL)
            if record is not None:
                self._given = record
                yield self._block(record)
                if self._given is record:
                    raise self._left_out(record)

    def _left_out(self, record: Any) -> ConfigurationError:
        (topic, partition), offset = self._client.position(record)
        return ConfigurationError(
            f"the block of the record {topic}:{partition}:{offset} has not ended, so that the next "
            f"commit would pass over it: write `async with taken as message:` for each record, in "
            f"the loop itself and not in a task"
        )

    async def _go_on(self) -> None:
        """Go on with the partitions whose time has come, from the records that they wait for."""
        for place, hold in list(self._held.items()):
            if place not in self._client.assigned():
                del self._held[place]  # whoever has it begins where the last commit was
            elif hold.until <= monotonic():
                try:
                    await self._client.seek(place, hold.offset)
                except Exception as error:  # noqa: BLE001 - as while partitions are handed out
                    _log.debug("a partition stays paused, since it cannot be sought: %r", error)
                    continue
                del self._held[place]
                self._client.resume(self._client.assigned() & {place})

    async def _poll(self, paused: Collection[Partition] | None, seconds: float) -> Any:
        """Poll once. Return a record, unless its partition is paused; None stands for all of them.

        aiokafka forgets in a rebalance what was paused. librdkafka does not, even for a partition
        that has been elsewhere meanwhile.
        """
        client = self._client
        assigned = client.assigned()
        waiting = assigned if paused is None else assigned.intersection(paused)
        client.pause(waiting)
        client.resume(assigned - self._assigned - waiting)
        self._assigned = assigned
        record = await client.poll(seconds)
        if record is None:
            return None
        place, offset = client.position(record)
        if paused is None or place in paused:
            self._held.setdefault(place, _Hold(0.0, offset))
            return None
        return record

    def _hold(self, record: Any, seconds: float) -> None:
        """Let the record come again after so many seconds. Its partition waits for it."""
        place, offset = self._client.position(record)
        self._held[place] = _Hold(monotonic() + seconds, offset)

    @asynccontextmanager
    async def _block(self, record: Any) -> AsyncIterator[Message]:
        try:
            async with self._polling():
                yield message_of(record)
        except NOT_NOW as error:
            _log.info("a record comes again later: %s", error)
            self._hold(record, getattr(error, "retry_after", _PAUSE))
            return
        except NEVER as error:
            _log.error("a record was passed over: %s", error)
        except BaseException:
            self._hold(record, _PAUSE)
            raise
        finally:
            self._given = None
        place, offset = self._client.position(record)
        try:
            await self._client.commit(place, offset + 1)
        except Exception as error:  # noqa: BLE001 - whoever has the partition now gets a duplicate
            _log.warning("the offset of a record was not committed: %r", error)

    @asynccontextmanager
    async def _polling(self) -> AsyncIterator[None]:
        """Poll during the block, with all partitions paused, so that Kafka sees that it lives."""
        stop = asyncio.Event()
        polls = asyncio.create_task(self._poll_until(stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait([polls])
            self._client.resume(self._client.assigned().difference(self._held))

    async def _poll_until(self, stop: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL)
                return
            try:
                await self._poll(None, 0)
            except Exception as error:  # noqa: BLE001 - a poll of the loop itself would raise it
                _log.debug("a poll failed while a record was processed: %r", error)


class _Aiokafka:
    """A consumer of aiokafka."""

    def __init__(self, consumer: Any) -> None:
        if consumer._enable_auto_commit:
            msg = (
                "records commits the offset of what is done, and this consumer would commit that "
                "of what is not: set enable_auto_commit=False"
            )
            raise ConfigurationError(msg)
        self._consumer = consumer

    def _places(self) -> dict[Partition, Any]:
        return {(one.topic, one.partition): one for one in self._consumer.assignment()}

    def assigned(self) -> set[Partition]:
        return set(self._places())

    def pause(self, places: Collection[Partition]) -> None:
        known = self._places()
        self._consumer.pause(*(known[one] for one in places))

    def resume(self, places: Collection[Partition]) -> None:
        known = self._places()
        self._consumer.resume(*(known[one] for one in places))

    def position(self, record: Any) -> tuple[Partition, int]:
        return (record.topic, record.partition), record.offset

    async def poll(self, seconds: float) -> Any:
        found = await self._consumer.getmany(timeout_ms=round(seconds * 1000), max_records=1)
        return next((one for some in found.values() for one in some), None)

    async def seek(self, place: Partition, offset: int) -> None:
        self._consumer.seek(self._places()[place], offset)

    async def commit(self, place: Partition, offset: int) -> None:
        await self._consumer.commit({self._places()[place]: offset})


class _Confluent:
    """A blocking consumer of confluent-kafka. What may wait is called on a thread."""

    def __init__(self, consumer: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._consumer = consumer
        self._error = KafkaException
        self._place = TopicPartition

    def assigned(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self._consumer.assignment()}

    def pause(self, places: Collection[Partition]) -> None:
        self._consumer.pause([self._place(*one) for one in places])

    def resume(self, places: Collection[Partition]) -> None:
        self._consumer.resume([self._place(*one) for one in places])

    def position(self, record: Any) -> tuple[Partition, int]:
        return (record.topic(), record.partition()), record.offset()

    async def poll(self, seconds: float) -> Any:
        found = await asyncio.to_thread(self._consumer.poll, seconds)
        if found is None or not (error := found.error()):
            return found
        if error.fatal() or error.name() not in _PASSING:
            raise self._error(error)
        _log.log(_PASSING[error.name()], "the consumer of Kafka goes on: %s", error.str())
        return None

    async def seek(self, place: Partition, offset: int) -> None:
        await asyncio.to_thread(self._consumer.seek, self._place(*place, offset))

    async def commit(self, place: Partition, offset: int) -> None:
        offsets = [self._place(*place, offset)]
        await asyncio.to_thread(self._consumer.commit, offsets=offsets, asynchronous=False)


__all__ = ["records"]
