"""`oncekey dead-letters`: what has failed for good, and how it is processed again."""

import asyncio
import json

import nats
import psycopg
import pytest
import redis.asyncio

from oncekey.messages import AsyncInbox, Inbox, Message, acknowledged
from oncekey.messages.dead_letters import dead_letters, free_dead_letter, publish
from oncekey.messages.message import Letter, from_redis_stream
from tests.patience import PATIENCE
from tests.servers.nats_fixtures import nats_server, stream_name
from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.servers.redis_fixtures import redis_server

__all__ = ["nats_server", "postgres", "postgres_url", "redis_server", "stream_name"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, folder):
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'inbox.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def inbox(url):
    inbox = Inbox(url, "billing", max_attempts=2)
    yield inbox
    inbox.close()


def fail(inbox, name, **facts):
    for _ in range(2):
        with (
            pytest.raises(ValueError, match="no such order"),
            inbox.leased(Message(id=name, type="order.placed", **facts)),
        ):
            raise ValueError(f"no such order as {name}")


def listed(run, url, *options):
    said = run("dead-letters", "--json", "--store", url, *options)
    assert said.exit_code == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def test_dead_letters_are_listed_with_their_history(run, url, inbox):
    inbox.mark_completed(inbox.mark_processing("done"))
    fail(inbox, "m-1")
    fail(inbox.for_consumer("shipping"), "m-2")
    found = listed(run, url)
    assert [(one["consumer"], one["key"], one["attempts"]) for one in found] == [
        ("shipping", "m-2", 2),
        ("billing", "m-1", 2),
    ]
    assert found[1]["error"] == "ValueError: no such order as m-1"
    assert found[1]["message_type"] == "order.placed"
    assert found[1]["first_seen"] < found[1]["died"] < found[1]["expires"]
    assert [one["key"] for one in listed(run, url, "--consumer", "billing")] == ["m-1"]
    assert [one["key"] for one in listed(run, url, "m-2")] == ["m-2"]
    assert len(listed(run, url, "--limit", "1")) == 1
    plain = run("dead-letters", "--store", url, "m-1")
    assert "billing/m-1  order.placed  2 attempts  first seen" in plain.stdout
    assert "ValueError: no such order as m-1" in plain.stdout
    hidden = run("dead-letters", "--store", url, "--redact")
    assert "m-1" not in hidden.stdout


def test_a_freed_message_is_processed_again_with_all_of_its_attempts(run, url, inbox):
    fail(inbox, "m-1")
    fail(inbox, "m-2")
    freed = run("dead-letters", "--store", url, "m-1", "--free")
    assert (freed.exit_code, freed.stdout) == (0, "billing/m-1 is free\n")
    assert [one["key"] for one in listed(run, url)] == ["m-2"]
    with inbox.leased(Message(id="m-1")) as delivery:
        assert (delivery.duplicate, delivery.number) == (False, 1)
    with inbox.leased(Message(id="m-2")) as delivery:
        assert delivery.dead
    assert listed(run, url, "--free")[0]["done"] == "is free"
    assert listed(run, url) == []


def test_where_there_is_nothing_to_see(run, url, inbox, postgres_url):
    inbox.migrate()
    empty = run("dead-letters", "--store", url)
    assert (empty.exit_code, empty.stderr) == (0, "no dead letters\n")
    missing = run("dead-letters", "--store", url, "m-9")
    assert missing.exit_code == 1
    assert "no message with the key 'm-9' has failed for good" in missing.stderr
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS processed_messages, processed_messages_schema")
    none = run("dead-letters", "--store", postgres_url)
    assert none.exit_code == 1
    assert "the store has no inbox" in none.stderr


def resend(run, url, *options):
    said = run("dead-letters", "--store", url, *options)
    return said.exit_code, said.stdout.strip() or said.stderr.strip()


@pytest.mark.parametrize("named", [True, False], ids=["its id", "its place"])
async def test_a_message_is_sent_again_and_processed(url, nats_server, stream_name, run, named):
    """With its id, its headers and its body, to those who have it processed before."""
    key = "m-1" if named else f"{stream_name}:1"
    inbox = AsyncInbox(url, "billing", max_attempts=1)
    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    await js.add_stream(name=stream_name, subjects=[f"{stream_name}.>"], duplicate_window=0.1)
    pulled = await js.pull_subscribe(f"{stream_name}.*", "billing")
    subject = f"{stream_name}.placed"
    headers = {"mark": "1"} | ({"Nats-Msg-Id": key} if named else {})
    await js.publish(subject, b'{"order": 7}', headers=headers)

    async def process(error=None):
        (delivered,) = await pulled.fetch(1, timeout=PATIENCE)
        async with acknowledged(delivered) as message, inbox.leased(message) as delivery:
            if error is not None:
                raise error
            return delivery.duplicate, message.find("order"), message.attributes["mark"]

    with pytest.raises(ValueError, match="no such order"):
        await process(ValueError("no such order"))
    assert (await process())[0]  # it is dead, and acknowledged
    asked = (key, "--resend", nats_server.url, "--to", subject)
    sent = await asyncio.to_thread(resend, run, url, *asked)
    while "still remembers" in sent[1]:  # so does the listing
        assert listed(run, url)[0]["dead"] is False
        sent = await asyncio.to_thread(resend, run, url, *asked)
    assert sent == (0, f"billing/{key} is free and was sent")
    assert await process() == (False, 7, "1")
    assert await inbox.is_processed(key)
    assert listed(run, url) == []
    await client.close()
    await inbox.aclose()


def test_what_was_not_kept_cannot_be_sent(run, url, inbox):
    fail(inbox, "m-1")
    fail(inbox, "m-2", body=b"7")
    code, said = resend(run, url, "m-1", "--resend", "nats://nowhere", "--to", "orders")
    assert (code, said) == (
        0,
        "billing/m-1 is free, but it was not kept, so that it cannot be sent",
    )
    code, said = resend(run, url, "m-2", "--resend", "redis://127.0.0.1:9", "--to", "orders")
    assert (code, "'m-2', which is free now; send it again" in said) == (4, True)
    code, said = resend(run, url, "m-2", "--resend", "gopher://nowhere", "--to", "orders")
    assert (code, "not to gopher://" in said) == (2, True)
    code, said = resend(run, url, "--resend", "nats://nowhere")
    assert (code, "belong together" in said) == (2, True)


def test_a_message_that_failed_in_atomic_mode_is_kept_too(run, postgres_url):
    inbox = Inbox(postgres_url, "billing", max_attempts=1)
    with (
        pytest.raises(ValueError, match="no"),
        psycopg.connect(postgres_url) as connection,
        connection.transaction(),
        inbox.atomic(connection, Message(id="m-1", body=b"7")),
    ):
        raise ValueError("no")
    assert [(one["key"], one["kept"]) for one in listed(run, postgres_url)] == [("m-1", True)]
    inbox.close()


@pytest.mark.parametrize("body", ["paid", "{}"])
@pytest.mark.parametrize("attributes", [{}, {"order": "7"}], ids=["bare", "with attributes"])
async def test_a_message_is_sent_to_a_stream_of_redis(redis_server, stream_name, attributes, body):
    letter = Letter(id="m-1", type="", attributes=attributes, body=body.encode())
    await publish(letter, redis_server.url, stream_name)
    async with redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True) as client:
        entries = [fields for _, fields in await client.xrange(stream_name)]
    assert entries == [{**attributes, "data": body, "oncekey-id": "m-1"}]


async def test_an_entry_of_a_stream_is_sent_again_as_it_was(redis_server, stream_name, folder):
    """It is still the same message: its second copy is a duplicate."""
    url = f"sqlite:///{folder / 'inbox.db'}"
    inbox = AsyncInbox(url, "billing", max_attempts=1)
    fields = {b"order": b"7", b"data": b"\xff\x00", b"type": b"order.placed"}
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        await client.xadd(stream_name, fields)
        (first,) = await client.xrange(stream_name)
        with pytest.raises(ValueError, match="no such order"):
            async with inbox.leased(from_redis_stream(stream_name, first)):
                raise ValueError("no such order")
        (dead,) = dead_letters(url)
        assert dead.key == f"{stream_name}:{first[0].decode()}"
        assert free_dead_letter(url, dead)
        for _ in range(2):
            await publish(dead.letter, redis_server.url, stream_name)
        copies = (await client.xrange(stream_name))[1:]
        found = []
        for copy in copies:
            assert copy[1] == fields | {b"oncekey-first-id": dead.key.encode()}
            message = from_redis_stream(stream_name, copy)
            assert message.body == from_redis_stream(stream_name, first).body
            async with inbox.leased(message) as delivery:
                found.append((delivery.key, delivery.duplicate))
    assert found == [(dead.key, False), (dead.key, True)]
    await inbox.aclose()
