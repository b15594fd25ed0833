"""FastStream on a real stream of Redis."""

import asyncio
from typing import Annotated, Any

import pytest
import redis.asyncio
from faststream import AckPolicy, Context
from faststream.redis import RedisBroker, StreamSub

from oncekey.messages import AsyncInbox
from oncekey.messages.dead_letters import dead_letters, free_dead_letter, publish
from oncekey.messages.faststream import InboxMiddleware
from tests.messages.fast import Heard
from tests.patience import until_async
from tests.servers.nats_fixtures import nats_server, stream_name
from tests.servers.redis_fixtures import redis_server

__all__ = ["nats_server", "redis_server", "stream_name"]


@pytest.mark.filterwarnings("ignore:AckPolicy")
@pytest.mark.parametrize("plain", [False, True], ids=["by FastStream", "by another client"])
async def test_a_dead_letter_that_is_sent_again_is_the_same_message(
    redis_server, stream_name, tmp_path, plain
):
    url, seen = f"sqlite:///{tmp_path / 'inbox.db'}", Heard()
    inbox = AsyncInbox(url, "billing", max_attempts=1)
    broker = RedisBroker(
        redis_server.url,
        middlewares=[InboxMiddleware(inbox)],
    )
    subscription = StreamSub(stream_name, group="billing", consumer="one", last_id=">")

    @broker.subscriber(stream=subscription, ack_policy=AckPolicy.NACK_ON_ERROR)
    async def bill(order: dict[str, str], message: Annotated[Any, Context("message")]) -> None:
        await seen.add((order.get("number"), message.headers.get("tenant")))
        if len(seen.all) == 1:
            raise ValueError("no such order")

    async with broker, redis.asyncio.Redis.from_url(redis_server.url) as client:
        await broker.start()
        if plain:
            await client.xadd(stream_name, {"number": "7"})
        else:
            await broker.publish({"number": "7"}, stream=stream_name, headers={"tenant": "a"})
        await seen.wait_for(1)

        async def dead():
            return await asyncio.to_thread(dead_letters, url)

        (letter,) = await until_async(dead)
        assert free_dead_letter(url, letter)
        for _ in range(2):
            await publish(letter.letter, redis_server.url, stream_name)

        async def answered():
            (group,) = await client.xinfo_groups(stream_name)
            (last,) = await client.xrevrange(stream_name, count=1)
            return group["last-delivered-id"] == last[0] and group["pending"] == 1  # the first

        await until_async(answered)
    assert seen.all == [("7", None if plain else "a")] * 2
    await inbox.aclose()
