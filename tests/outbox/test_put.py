"""A message is kept in the transaction of the caller, on every driver."""

import json

import httpx
import pytest
from django.db import transaction  # type: ignore[import-untyped]  # Django brings no types
from fastapi import Depends, FastAPI

from oncekey import ConfigurationError, Once, current, current_async
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.messages import Inbox
from oncekey.outbox import AsyncOutbox, Message, Outbox
from tests.messages.ways_async import WAYS as ASYNC_WAYS

PAID = Message(type="order.paid", body={"order": 7}, attributes={"tenant": "a", "tries": 3})
KEPT = """
SELECT message_id, destination, message_key, message_type, attributes, body, status
FROM outbox_messages ORDER BY number
"""
LATER = {
    "postgres": "SELECT due_at > created_at + interval '30min' FROM outbox_messages "
    "ORDER BY number",
    "sqlite": "SELECT due_at > datetime(created_at, '+30 minutes') FROM outbox_messages "
    "ORDER BY number",
}


class _UndoneError(Exception):
    """Rolls a transaction back."""


def kept(way):
    return way.execute(KEPT)


def test_a_message_is_committed_with_the_work(way, outbox):
    with way.transaction() as connection:
        way.write(connection, 7)
        name = outbox.put(connection, PAID, to="orders.paid")
    ((found, to, key, kind, attributes, body, status),) = kept(way)
    assert (found, to, key, kind, status) == (name, "orders.paid", None, "order.paid", "pending")
    assert json.loads(attributes) == {"tenant": "a", "tries": 3}
    assert json.loads(bytes(body)) == {"order": 7}
    assert way.orders() == ["7"]


def test_a_rollback_takes_the_message_with_it(way, outbox):
    outbox.migrate()
    with pytest.raises(_UndoneError), way.transaction() as connection:
        outbox.put(connection, PAID, to="orders.paid")
        outbox.put(connection, PAID, to="orders.paid", key="order 7")
        raise _UndoneError
    assert kept(way) == []


def test_a_second_message_with_an_id_is_not_kept(way, outbox):
    first = Message(id="order-7-paid", body=b"first")
    with way.transaction() as connection:
        assert outbox.put(connection, first, to="orders.paid", key="7") == "order-7-paid"
    with way.transaction() as connection:
        again = Message(id="order-7-paid", body=b"second")
        assert outbox.put(connection, again, to="orders.paid", key="7") == "order-7-paid"
        assert outbox.put(connection, again, to="orders.paid") == "order-7-paid"
        way.write(connection, 7)
    assert [bytes(row[5]) for row in kept(way)] == [b"first"]
    assert way.orders() == ["7"]  # the transaction went on


def test_messages_are_numbered_in_the_order_of_their_puts(way, outbox):
    with way.transaction() as connection:
        names = [outbox.put(connection, PAID, to="orders.paid", key="7") for _ in range(3)]
    assert [row[0] for row in kept(way)] == names
    assert {row[2] for row in kept(way)} == {"7"}


def test_a_delayed_message_is_due_later(way, outbox):
    with way.transaction() as connection:
        outbox.put(connection, PAID, to="orders.paid", after="1h")
        outbox.put(connection, PAID, to="orders.paid", after=0)
    far = LATER["postgres" if way.url.startswith("postgres") else "sqlite"]
    assert [bool(late) for (late,) in way.execute(far)] == [True, False]


def test_a_body_is_kept_as_bytes(way, outbox):
    with way.transaction() as connection:
        for body in (b"a", bytearray(b"a"), memoryview(b"a"), "a"):
            outbox.put(connection, Message(body=body), to="any")
        outbox.put(connection, Message(body=["a"]), to="any")
    assert [bytes(row[5]) for row in kept(way)] == [b"a"] * 4 + [b'["a"]']


@pytest.mark.parametrize("name", ASYNC_WAYS)
async def test_in_a_coroutine_it_is_the_same(name, request):
    kind, database = ASYNC_WAYS[name]
    way = kind(request.getfixturevalue(f"{database}_url"))
    outbox = AsyncOutbox(getattr(way, "inbox_url", way.url))
    try:
        with pytest.raises(_UndoneError):
            async with way.transaction() as connection:
                await outbox.put(connection, PAID, to="orders.gone")
                raise _UndoneError
        async with way.transaction() as connection:
            await way.write(connection, 7)
            first = await outbox.put(connection, PAID, to="orders.paid", key="7")
            second = await outbox.put(connection, PAID, to="orders.late", after="1h")
            await outbox.put(connection, Message(id=first), to="orders.again", key="7")
    finally:
        await outbox.aclose()
        way.close()
    assert [(row[0], row[1], row[2]) for row in kept(way)] == [
        (first, "orders.paid", "7"),
        (second, "orders.late", None),
    ]
    assert way.orders() == ["7"]


def test_the_table_is_made_beside_that_of_an_inbox(postgres_url, way_of):
    way = way_of("psycopg")
    inbox, outbox = Inbox(postgres_url, "billing"), Outbox(postgres_url)
    try:
        with way.transaction() as connection:
            with inbox.atomic(connection, Message(id="order-7")):
                outbox.put(connection, PAID, to="orders.paid")
            with inbox.atomic(connection, Message(id="order-7")) as again:
                assert again.duplicate
    finally:
        inbox.close()
        outbox.close()
    assert len(kept(way)) == 1


def test_an_attempt_that_runs_again_makes_no_second_message(way, outbox):
    once, dying = Once("memory://"), [False, False, True]

    @once(key="{order}", on_error="release")
    def pay(order):
        with way.transaction() as connection:
            way.write(connection, order)
            for message in (PAID, PAID, Message(id="receipt")):
                outbox.put(connection, message, to="orders.paid", key=order, sender=current())
        if dying.pop():
            raise OSError("it was committed, and not recorded")

    with pytest.raises(OSError, match="committed"):
        pay("7")
    first = [row[0] for row in kept(way)]
    pay("7")
    pay("8")
    once.close()
    assert len(first) == len(set(first)) == 3
    names = [row[0] for row in kept(way)]
    assert names[:3] == first
    assert len(set(names)) == 6
    assert way.orders() == ["7", "7", "8"]


async def test_a_handler_on_a_thread_puts_each_of_its_messages(way_of, open_outbox):
    """There each `current()` is another object, for the same attempt."""
    way, shop = way_of("sqlite3"), FastAPI()
    outbox = open_outbox(way.url)

    async def told() -> None:
        with way.transaction() as connection:
            outbox.put(connection, PAID, to="orders.seen", sender=current_async())

    @shop.post("/orders", dependencies=[Depends(told)])
    def order() -> None:
        with way.transaction() as connection:
            for _ in range(2):
                outbox.put(connection, PAID, to="orders.paid", sender=current())

    shop.add_middleware(IdempotencyMiddleware, once=Once("memory://"), scope=None)
    transport = httpx.ASGITransport(shop)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.post("/orders", headers={"Idempotency-Key": "order-7"})
    assert answer.status_code == 200
    assert [row[1] for row in kept(way)] == ["orders.seen", "orders.paid", "orders.paid"]


def test_what_is_no_sender(way_of, open_outbox):
    way = way_of("sqlite3")
    outbox = open_outbox(way.url)
    with (
        way.transaction() as connection,
        pytest.raises(ConfigurationError, match="a sender is an attempt"),
    ):
        outbox.put(connection, PAID, to="orders.paid", sender="me")


def test_a_delivery_of_an_inbox_sends_under_its_key(way_of, open_outbox):
    way = way_of("psycopg")
    outbox = open_outbox(way.url)
    inbox = Inbox(way.url, "billing")
    found = set()
    for _ in range(2):
        with pytest.raises(_UndoneError), way.transaction() as connection:
            with inbox.atomic(connection, Message(id="order-7")) as delivery:
                found.add(outbox.put(connection, PAID, to="orders.paid", sender=delivery))
            raise _UndoneError
    inbox.close()
    assert len(found) == 1
    assert kept(way) == []


@pytest.mark.parametrize("name", ["django", "django on sqlite"])
def test_django_needs_no_on_commit(way_of, open_outbox, name):
    way = way_of(name)
    outbox = open_outbox(way.url)
    outbox.migrate()

    def lost():
        raise _UndoneError  # as if the process died between the commit and what follows it

    with pytest.raises(_UndoneError), way.transaction() as connection:
        connection.on_commit(lost)
        way.write(connection, 7)
        outbox.put(connection, Message(id="kept"), to="orders.paid")
        with pytest.raises(ZeroDivisionError), transaction.atomic(connection.alias):
            outbox.put(connection, Message(id="gone"), to="orders.paid")
            raise ZeroDivisionError
    assert way.orders() == ["7"]
    assert [row[0] for row in kept(way)] == ["kept"]
