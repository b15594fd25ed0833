"""FastStream on a real JetStream: a redelivery runs nothing, and its reply is published."""

import asyncio
import logging
from functools import partial

import pytest
from faststream import Response
from faststream.exceptions import AckMessage, NackMessage
from faststream.nats import NatsResponse, PullSub
from pydantic import BaseModel

from oncekey import InProgressError, Once
from oncekey.messages import AsyncInbox, Message, by_fields, jetstream
from oncekey.messages.faststream import (
    CurrentConnection,
    CurrentDelivery,
    InboxMiddleware,
    once_message,
)
from tests.messages.fast import Heard, Jet, Losing, transaction_to
from tests.messages.ways_async import WAYS
from tests.patience import PATIENCE, until_async
from tests.servers.nats_fixtures import nats_server, stream_name

__all__ = ["nats_server", "stream_name"]


NAME = "test_atomic_mode_commits_before_the_reply"


class Receipt(BaseModel):
    number: int
    total: int


@pytest.fixture
async def inbox():
    inbox = AsyncInbox("memory://", "billing")
    yield inbox
    await inbox.aclose()


@pytest.fixture
def beating(monkeypatch):
    """JetStream hears of what is in progress all the time; how often it would."""
    asked, beat = [], jetstream._beat

    def often(tell, every):
        asked.append(every)
        return beat(tell, 0.01)

    monkeypatch.setattr(jetstream, "_beat", often)
    return asked


@pytest.fixture
def losing():
    return Losing()


@pytest.fixture
def jet_of(nats_server, stream_name, losing):
    """A broker with these middlewares, and one that may lose replies."""
    return lambda *middlewares, **options: Jet(
        nats_server.url, stream_name, middlewares=[*middlewares, losing], **options
    )


@pytest.mark.parametrize("way", ["middleware", "decorator"])
async def test_a_lost_reply_is_published_by_the_redelivery(way, jet_of, inbox, losing):
    jet = jet_of(*([InboxMiddleware(inbox)] if way == "middleware" else []))
    ran, losing.losses = [], 2

    @jet.subscriber()
    @jet.publisher()
    @(once_message(inbox) if way == "decorator" else lambda function: function)
    async def bill(number: int) -> Receipt:
        ran.append(number)
        return Receipt(number=number, total=40)

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [('{"number":7,"total":40}', None)]
        await jet.acknowledged()
        assert (await jet.facts())[2] == 0
    assert ran == [7]
    assert losing.losses == 0


@pytest.mark.parametrize("way", ["middleware", "decorator"])
async def test_atomic_mode_commits_before_the_reply(way, jet_of, losing, postgres_url):
    rows = WAYS["psycopg"][0](postgres_url)
    inbox = AsyncInbox(postgres_url, "billing")
    guard = {"transaction": partial(transaction_to, postgres_url)}
    jet = jet_of(*([InboxMiddleware(inbox, **guard)] if way == "middleware" else []))
    attempts, losing.losses = [], 1

    async def write(number, connection, delivery):
        attempts.append(delivery.number)
        await rows.write(connection, number)
        if len(attempts) == 1:
            raise ValueError("the first attempt is rolled back")
        return f"receipt of {number}"

    if way == "middleware":

        @jet.subscriber()
        @jet.publisher()
        async def bill(
            number: int, connection: CurrentConnection, delivery: CurrentDelivery
        ) -> str:
            return str(await write(number, connection, delivery))
    else:

        @jet.subscriber()
        @jet.publisher()
        @once_message(inbox, **guard)
        async def bill(number: int, connection, delivery) -> str:
            return str(await write(number, connection, delivery))

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [("receipt of 7", None)]
        await jet.acknowledged()
    assert rows.orders() == ["7"]
    assert len(attempts) == 2
    consumer = "billing" if way == "decorator" else f"billing/{__name__}.{NAME}.<locals>.bill"
    assert [row[:3] for row in rows.marks()] == [(consumer, "m-1", "completed")]
    await inbox.aclose()


async def test_an_error_frees_the_message_so_that_the_redelivery_runs(jet_of, inbox):
    jet = jet_of(InboxMiddleware(inbox))
    numbers = []

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int, delivery: CurrentDelivery) -> str:
        numbers.append(delivery.number)
        if delivery.number < 3:
            raise ValueError("not yet")
        return "done"

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [("done", None)]
        await jet.acknowledged()
    assert numbers == [1, 2, 3]


async def test_a_message_in_progress_elsewhere_waits_in_place(jet_of, inbox, beating):
    """No delivery is spent on it: JetStream is told so in time."""
    jet = jet_of()
    ran, beats = [], Heard()

    @jet.subscriber(ack_wait=3600, max_deliver=1)
    @jet.publisher()
    @once_message(inbox, wait=PATIENCE)
    async def bill(number: int) -> str:
        ran.append(number)
        return "here"

    async def beat(message):
        if message.data == b"+WPI":
            await beats.add(message)

    async with jet.running():
        await jet.nats.subscribe(f"$JS.ACK.{jet.name}.>", cb=beat)
        async with inbox.leased(Message(id="m-1")) as elsewhere:
            await jet.place()
            await beats.wait_for(5)
            await elsewhere.complete("elsewhere")
        assert await jet.replies.wait_for(1) == [("elsewhere", None)]
        await jet.acknowledged()
        assert (await jet.facts())[2] == 0
    assert (ran, beating) == ([], [1200])


async def test_who_may_not_wait_is_put_back_and_comes_again(jet_of, inbox, caplog):
    jet = jet_of()
    tried = asyncio.Event()

    @jet.subscriber()
    @jet.publisher()
    @once_message(inbox, wait=0)
    async def bill(number: int) -> str:
        return "here"

    class Hearing(logging.Handler):
        def emit(self, record):
            tried.set()

    log, hearing = logging.getLogger("oncekey"), Hearing(logging.INFO)
    caplog.set_level(logging.INFO, "oncekey")
    log.addHandler(hearing)
    async with jet.running():
        async with inbox.leased(Message(id="m-1")) as elsewhere:
            await jet.place()
            await tried.wait()
            await elsewhere.complete("elsewhere")
        assert await jet.replies.wait_for(1) == [("elsewhere", None)]
        await jet.acknowledged()
    log.removeHandler(hearing)
    assert "a message was put back" in caplog.text


async def test_a_limit_of_deliveries_is_not_used_up_by_waiting(jet_of):
    """However often it is refused, it stays here, and JetStream hears that it does."""
    refused = []
    once = Once("memory://", observers=[lambda event: refused.append(event.name)])
    inbox = AsyncInbox(once, "billing", retry_after="20ms")
    jet = jet_of()

    @jet.subscriber(max_deliver=2)
    @jet.publisher()
    @once_message(inbox, wait=0)
    async def bill(number: int) -> str:
        return "here"

    async with jet.running():
        async with inbox.leased(Message(id="m-1")) as elsewhere:
            await jet.place()
            await until_async(lambda: refused.count("busy") > 3)
            await elsewhere.complete("elsewhere")
        assert await jet.replies.wait_for(1) == [("elsewhere", None)]
        await jet.acknowledged()
        assert (await jet.facts())[2] == 0
    await inbox.aclose()


async def test_a_long_handler_keeps_its_message(jet_of, inbox, beating):
    jet = jet_of(InboxMiddleware(inbox))
    ran, beats, enough = [], Heard(), asyncio.Event()

    @jet.subscriber(ack_wait=3600, max_workers=2)
    @jet.publisher()
    async def bill(number: int) -> str:
        ran.append(number)
        await enough.wait()
        return "done"

    async def beat(message):
        if message.data == b"+WPI":
            await beats.add(message)

    async with jet.running():
        await jet.nats.subscribe(f"$JS.ACK.{jet.name}.>", cb=beat)
        await jet.place()
        await beats.wait_for(5)
        enough.set()
        assert await jet.replies.wait_for(1) == [("done", None)]
        await jet.acknowledged()
    assert (ran, beating) == ([7], [1200])


async def test_two_handlers_of_one_broker_are_two_consumers(jet_of, inbox):
    jet = jet_of(InboxMiddleware(inbox))

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int) -> str:
        return "billed"

    @jet.subscriber(durable="shipping")
    @jet.publisher()
    def ship(number: int) -> str:  # on a thread
        return "shipped"

    async with jet.running():
        await jet.place()
        assert sorted(await jet.replies.wait_for(2)) == [("billed", None), ("shipped", None)]
        await jet.acknowledged()


@pytest.mark.parametrize("kind", [Response, NatsResponse])
async def test_a_response_is_published_again_with_its_headers(kind, jet_of, inbox, losing):
    jet = jet_of(InboxMiddleware(inbox))
    losing.losses = 1

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int, delivery: CurrentDelivery):
        return kind({"number": number}, headers={"mark": f"attempt {delivery.number}"})

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [('{"number":7}', "attempt 1")]
        await jet.acknowledged()
    assert losing.losses == 0


async def test_who_acknowledges_without_a_reply_is_done(jet_of, inbox):
    jet = jet_of(InboxMiddleware(inbox))
    ran = []

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int) -> str:
        ran.append(number)
        if number == 7:
            raise AckMessage
        return "reply"

    async with jet.running():
        await jet.place()
        await jet.acknowledged()
        await jet.js.publish(f"{jet.name}.placed", b"7", headers={"Nats-Msg-Id": "m-1"})
        await jet.place(b"8", "m-2")
        assert await jet.replies.wait_for(1) == [("reply", None)]
        await jet.acknowledged(2)
    assert ran == [7, 8]


async def test_who_asks_for_it_again_gets_it_again(jet_of, inbox):
    jet = jet_of(InboxMiddleware(inbox))
    numbers = []

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int, delivery: CurrentDelivery) -> str:
        numbers.append(delivery.number)
        if delivery.number == 1:
            raise NackMessage(delay=0.01)
        return "done"

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [("done", None)]
    assert numbers == [1, 2]


async def test_a_result_that_was_not_kept_is_acknowledged_and_said_so(
    jet_of, inbox, losing, caplog
):
    jet = jet_of(InboxMiddleware(inbox))
    ran, losing.losses = [], 1

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int):  # no annotation: plain values only
        ran.append(number)
        return Receipt(number=number, total=40)

    async with jet.running():
        await jet.place()
        await jet.acknowledged()
    assert ran == [7]
    assert "acknowledged without its reply" in caplog.text


async def test_a_message_that_failed_for_good_is_acknowledged(jet_of, caplog):
    letters = []
    inbox = AsyncInbox("memory://", "billing", max_attempts=2, dead_letter=letters.append)
    jet = jet_of(InboxMiddleware(inbox))

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int) -> str:
        raise ValueError("never")

    async with jet.running():
        await jet.place()
        await jet.acknowledged()
        assert jet.replies.all == []
    assert [letter.attempts for letter in letters] == [2]
    assert "failed for good" in caplog.text


async def test_a_message_without_a_usable_key_is_rejected(jet_of, caplog):
    inbox = AsyncInbox("memory://", "billing", key=by_fields("customer"))
    jet = jet_of(InboxMiddleware(inbox))

    @jet.subscriber()
    async def bill(number: int) -> str:
        raise AssertionError("nobody may run it")

    async with jet.running():
        await jet.place(b'{"number": 7}')
        await jet.acknowledged()
    assert "a message was rejected: the message has no field 'customer'" in caplog.text


async def test_what_a_handler_completes_itself_is_its_reply(jet_of, postgres_url, losing):
    rows = WAYS["psycopg"][0](postgres_url)
    inbox = AsyncInbox(postgres_url, "billing")
    jet, losing.losses = jet_of(InboxMiddleware(inbox)), 1

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int, delivery: CurrentDelivery) -> str:
        async with transaction_to(postgres_url) as connection:
            await rows.write(connection, number)
            await delivery.complete("in the transaction", connection=connection)
        return "something else"

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [("in the transaction", None)]
        await jet.acknowledged()
    assert rows.orders() == ["7"]
    await inbox.aclose()


async def test_in_progress_inside_a_handler_is_an_error_of_its_own(jet_of, inbox):
    jet = jet_of(InboxMiddleware(inbox))
    numbers = []

    @jet.subscriber()
    @jet.publisher()
    async def bill(number: int, delivery: CurrentDelivery) -> str:
        numbers.append(delivery.number)
        if delivery.number == 1:
            raise InProgressError("of something else", key="other", scope=None, retry_after=9)
        return "done"

    async with jet.running():
        await jet.place()
        assert await jet.replies.wait_for(1) == [("done", None)]
    assert numbers == [1, 2]


async def test_a_batch_is_processed_once(jet_of, postgres_url):
    """One of its messages was processed before, and it comes again because its handler fails."""
    rows = WAYS["psycopg"][0](postgres_url)
    inbox = AsyncInbox(postgres_url, "billing")
    jet, seen = jet_of(), Heard()

    # Batches are full, and nobody gives up waiting: who does may lose a message on its way.
    @jet.subscriber(pull_sub=PullSub(batch_size=2, timeout=PATIENCE, batch=True))
    @once_message(inbox, transaction=partial(transaction_to, postgres_url))
    async def bill(numbers: list[int], deliveries, connection) -> None:
        for number, delivery in zip(numbers, deliveries, strict=True):
            if not delivery.duplicate:
                await rows.write(connection, number)
        await seen.add([(one.key, one.duplicate) for one in deliveries])
        if len(seen.all) == 2:
            raise ValueError("the second batch is rolled back")

    async with jet.running():
        await jet.place(b"6", "m-0")
        await jet.place(b"7", "m-1")
        await jet.acknowledged(2)
        elsewhere = AsyncInbox(postgres_url, "billing")
        async with (
            transaction_to(postgres_url) as connection,
            elsewhere.atomic(connection, Message(id="m-2")),
        ):
            await rows.write(connection, "elsewhere")
        await jet.place(b"8", "m-2")
        await jet.place(b"9", "m-3")
        await jet.acknowledged(4)
    assert rows.orders() == ["6", "7", "9", "elsewhere"]
    assert seen.all[0] == [("m-0", False), ("m-1", False)]
    assert [sorted(batch) for batch in seen.all[1:]] == [[("m-2", True), ("m-3", False)]] * 2
    assert [mark[2] for mark in rows.marks()] == ["completed"] * 4
    await elsewhere.aclose()
    await inbox.aclose()
