"""The loop over records of Kafka, with both clients, on librdkafka's mock cluster."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]  # it has no types
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]  # as above
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from oncekey import ConfigurationError
from oncekey.messages import AsyncInbox, by_fields
from oncekey.messages.kafka import records
from tests.patience import PATIENCE, until_async

POLLED = 6.0
"""Seconds after which a consumer that is not polled leaves its group."""


class Aiokafka:
    async def open(self, servers, topic):
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=f"billing {topic}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=int(POLLED * 1000),
            session_timeout_ms=int(POLLED * 1000),
        )
        await self.consumer.start()
        return self

    async def committed(self, topic, partition):
        return await self.consumer.committed(TopicPartition(topic, partition)) or 0

    def assigned(self):
        return {(one.topic, one.partition) for one in self.consumer.assignment()}

    async def close(self):
        await self.consumer.stop()


class Confluent:
    settings: Mapping[str, object] = MappingProxyType({})

    async def open(self, servers, topic):
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"billing {topic}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "max.poll.interval.ms": int(POLLED * 1000),
                "session.timeout.ms": int(POLLED * 1000),
                "log_level": 0,
                **self.settings,
            }
        )
        self.consumer.subscribe([topic])
        return self

    async def committed(self, topic, partition):
        (found,) = await asyncio.to_thread(
            self.consumer.committed, [Place(topic, partition)], PATIENCE
        )
        return max(0, found.offset)

    def assigned(self):
        return {(one.topic, one.partition) for one in self.consumer.assignment()}

    async def close(self):
        await asyncio.to_thread(self.consumer.close)


class ConfluentToldOfEnds(Confluent):
    """It reports as an error that a partition has no more records."""

    settings = MappingProxyType({"enable.partition.eof": True})


@pytest.fixture(params=[Aiokafka, Confluent], ids=["aiokafka", "confluent"])
async def open_client(request, kafka):
    """Open consumers of one group, each with its own client, and close them."""
    async with AsyncExitStack() as stack:

        async def opened(topic):
            client = await request.param().open(kafka.servers, topic)
            stack.push_async_callback(client.close)
            return client

        yield opened


@pytest.fixture
async def inbox():
    inbox = AsyncInbox("memory://", "billing", retry_after="100ms")
    yield inbox
    await inbox.aclose()


class Loop:
    """A consumer at work: what it has processed, in order."""

    def __init__(self, client, inbox):
        self.client, self.inbox = client, inbox
        self.done = []
        self.seen = []
        self.handlers = {}
        self.task = asyncio.create_task(self.run())

    async def run(self):
        async for taken in records(self.client.consumer):
            try:
                async with taken as message:
                    body = message.body.decode()
                    self.seen.append(body)
                    async with self.inbox.leased(message) as delivery:
                        await self.handlers.get(body, asyncio.sleep)(0)
                        if not delivery.duplicate:
                            self.done.append(body)
            except ZeroDivisionError:
                continue

    async def has_done(self, *bodies):
        def all_done():
            if self.task.done():
                self.task.result()
            return set(bodies) <= set(self.done)

        await until_async(all_done, lambda: (self.done, self.seen))

    async def stop(self):
        self.task.cancel()
        await asyncio.wait([self.task])


async def committed(client, topic, partition, offset):
    async def so_far():
        return await client.committed(topic, partition) == offset

    await until_async(so_far)


async def test_the_partition_of_a_record_in_progress_waits_and_others_go_on(
    kafka, open_client, inbox
):
    topic = kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    elsewhere = await inbox.mark_processing(f"{topic}:0:0")
    loop = Loop(client := await open_client(topic), inbox)
    await until_async(lambda: loop.seen.count("a") > 1)
    kafka.place(topic, 1, "c", "d")
    await loop.has_done("c", "d")
    await committed(client, topic, 1, 2)
    assert (loop.done, await client.committed(topic, 0)) == (["c", "d"], 0)
    await inbox.mark_failed(elsewhere, "it was given up")
    await loop.has_done("a", "b")
    await committed(client, topic, 0, 2)
    assert loop.done == ["c", "d", "a", "b"]
    await loop.stop()


async def test_a_record_that_fails_comes_again_before_the_next(kafka, open_client, inbox):
    topic = kafka.new_topic()
    failures = []

    async def fail_once(_):
        failures.append(await client.committed(topic, 0))
        if len(failures) == 1:
            raise ZeroDivisionError

    kafka.place(topic, 0, "a", "b", "c")
    loop = Loop(client := await open_client(topic), inbox)
    loop.handlers["b"] = fail_once
    await loop.has_done("a", "b", "c")
    assert (loop.done, failures) == (["a", "b", "c"], [1, 1])
    assert loop.seen == ["a", "b", "b", "c"]
    await committed(client, topic, 0, 3)
    await loop.stop()


async def test_a_consumer_is_polled_while_it_works(kafka, open_client, inbox, caplog):
    """Longer than Kafka waits for a poll, and the partition is still its own."""
    topic = kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    loop = Loop(client := await open_client(topic), inbox)
    loop.handlers["a"] = lambda _: asyncio.sleep(POLLED * 1.5)
    await loop.has_done("a", "b")
    await committed(client, topic, 0, 2)
    assert loop.seen == ["a", "b"]
    assert "not committed" not in caplog.text
    await loop.stop()


async def test_what_is_held_is_held_after_a_rebalance(kafka, open_client, inbox):
    topic, another = kafka.new_topic(), kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    elsewhere = await inbox.mark_processing(f"{topic}:0:0")
    loop = Loop(client := await open_client(topic), inbox)
    await until_async(lambda: "a" in loop.seen)
    client.consumer.subscribe([topic, another])  # the group is balanced anew
    await until_async(lambda: len(client.assigned()) == 8)
    asked = len(loop.seen)
    kafka.place(another, 0, "c")
    await loop.has_done("c")
    await until_async(lambda: loop.seen[asked:].count("a") > 1)
    assert loop.done == ["c"]
    await inbox.mark_failed(elsewhere, "it was given up")
    await loop.has_done("a", "b")
    assert loop.done == ["c", "a", "b"]
    await loop.stop()


async def test_a_partition_that_waits_goes_on_when_it_has_been_elsewhere(kafka, open_client):
    topic, another = kafka.new_topic(), kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    inbox = AsyncInbox("memory://", "billing", retry_after="1h")
    elsewhere = await inbox.mark_processing(f"{topic}:0:0")
    loop = Loop(client := await open_client(topic), inbox)
    await until_async(lambda: "a" in loop.seen)
    client.consumer.subscribe([another])
    await until_async(lambda: {one for one, _ in client.assigned()} == {another})
    kafka.place(another, 0, "c")
    await loop.has_done("c")
    await inbox.mark_failed(elsewhere, "it was given up")
    client.consumer.subscribe([topic])
    await loop.has_done("a", "b")
    assert loop.done == ["c", "a", "b"]
    await loop.stop()
    await inbox.aclose()


@pytest.mark.parametrize("open_client", [ConfluentToldOfEnds], ids=["eof"], indirect=True)
async def test_the_end_of_a_partition_ends_nothing(kafka, open_client, inbox):
    topic = kafka.new_topic()
    loop = Loop(await open_client(topic), inbox)
    for body in ("a", "b", "c"):
        kafka.place(topic, 0, body)
        await loop.has_done(body)
    await loop.stop()


@pytest.mark.parametrize("open_client", [Confluent], ids=["confluent"], indirect=True)
async def test_a_handler_that_blocks_the_loop_for_too_long_ends_nothing(
    kafka, open_client, inbox, caplog
):
    """The consumer is put out of its group, and joins it again."""
    topic = kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    loop = Loop(await open_client(topic), inbox)

    async def block_once(_):
        del loop.handlers["a"]
        time.sleep(POLLED * 1.5)  # noqa: ASYNC251 - it is what this is about

    loop.handlers["a"] = block_once
    await loop.has_done("a", "b")
    assert loop.done == ["a", "b"]
    assert "goes on: " in caplog.text
    await loop.stop()


@pytest.mark.parametrize("open_client", [Confluent], ids=["confluent"], indirect=True)
async def test_partitions_that_go_to_another_consumer_lose_nothing(kafka, open_client, inbox):
    """The mock cluster refuses a second member of aiokafka (SyncGroup: INVALID_REQUEST)."""
    topic = kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    kafka.place(topic, 3, "c", "d")
    marks = [await inbox.mark_processing(f"{topic}:{one}:0") for one in (0, 3)]
    first = Loop(await open_client(topic), inbox)
    await until_async(lambda: {"a", "c"} <= set(first.seen))
    second = Loop(await open_client(topic), inbox)
    await until_async(lambda: second.seen)
    assert first.done == second.done == []
    assert set(first.seen) | set(second.seen) == {"a", "c"}  # nobody passed what is held
    for mark in marks:
        await inbox.mark_failed(mark, "it was given up")
    await until_async(
        lambda: len(first.done) + len(second.done) >= 4, lambda: [vars(first), vars(second)]
    )
    assert {tuple(first.done), tuple(second.done)} == {("a", "b"), ("c", "d")}
    for loop in (first, second):
        await loop.stop()


@pytest.mark.parametrize("left", ["out", "open"])
async def test_a_record_whose_block_has_not_ended_is_not_passed_over(kafka, open_client, left):
    """It is not entered, or entered by a task while the loop goes on to the next."""
    topic = kafka.new_topic()
    kafka.place(topic, 0, "a", "b")
    client, blocks = await open_client(topic), []
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigurationError, match=f"{topic}:0:0 has not ended"):
            async for taken in records(client.consumer):
                blocks.append(taken)
                assert len(blocks) == 1, "a commit of the second would pass over the first"
                if left == "open":
                    await stack.enter_async_context(taken)


async def test_a_record_without_a_key_is_passed_over(kafka, open_client, caplog):
    topic = kafka.new_topic()
    kafka.place(topic, 0, '{"order": 7}', "no JSON", '{"order": 8}')
    inbox = AsyncInbox("memory://", "billing", key=by_fields("order"))
    loop = Loop(client := await open_client(topic), inbox)
    await loop.has_done('{"order": 7}', '{"order": 8}')
    await committed(client, topic, 0, 3)
    assert [one.levelno for one in caplog.records if "passed over" in one.message] == [
        logging.ERROR
    ]
    await loop.stop()
    await inbox.aclose()


async def test_consumers_that_do_not_fit_are_refused(kafka):
    by_itself = AIOKafkaConsumer(bootstrap_servers=kafka.servers, group_id="billing")
    with pytest.raises(ConfigurationError, match="enable_auto_commit=False"):
        records(by_itself)
    await by_itself.stop()
    with pytest.raises(ConfigurationError, match="not for a list"):
        records([])
