"""Orders arrive through NATS JetStream, go into PostgreSQL, and are answered with a receipt.

Whatever happens twice (a delivery, a crash, a lost reply) makes one row and one receipt:

    the inbox     the mark of the message and the order are one transaction (atomic mode)
    the reply     carries the message's own key as Nats-Msg-Id, so that its stream keeps one

    NATS_URL=nats://127.0.0.1:4222 DATABASE_URL=postgresql://... python -m examples.consumer
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from faststream import AckPolicy, FastStream
from faststream.nats import JStream, NatsBroker, NatsResponse, PullSub
from nats.js.api import ConsumerConfig

from oncekey.messages import AsyncInbox
from oncekey.messages.faststream import CurrentConnection, CurrentDelivery, InboxMiddleware

DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")

ORDERS = JStream("ORDERS", subjects=["orders.placed"])
RECEIPTS = JStream("RECEIPTS", subjects=["orders.billed"])
TABLE = "CREATE TABLE IF NOT EXISTS orders (number text PRIMARY KEY, total int NOT NULL)"
WRITE = "INSERT INTO orders (number, total) VALUES (%s, %s)"


@asynccontextmanager
async def transaction() -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection inside a transaction; a real service takes it from a pool."""
    async with (
        await psycopg.AsyncConnection.connect(DATABASE) as connection,
        connection.transaction(),
    ):
        yield connection


inbox = AsyncInbox(DATABASE, consumer="billing", ttl="7d")
once_each = InboxMiddleware(inbox, transaction=transaction)
broker = NatsBroker(
    os.environ.get("NATS_URL", "nats://localhost:4222"), middlewares=[once_each], logger=None
)
app = FastStream(broker, logger=None)


@dataclass
class Order:
    """What a customer wants."""

    number: str
    total: int


@broker.subscriber(
    "orders.placed",
    stream=ORDERS,
    durable="billing",
    pull_sub=PullSub(batch_size=10, timeout=1),
    config=ConsumerConfig(ack_wait=float(os.environ.get("ACK_WAIT", "30"))),
    ack_policy=AckPolicy.NACK_ON_ERROR,  # the default would give a message up after one error
)
@broker.publisher("orders.billed", stream=RECEIPTS)
async def bill(
    order: Order, connection: CurrentConnection, delivery: CurrentDelivery
) -> NatsResponse:
    """One row, and one receipt: both are there when the transaction is."""
    await connection.execute(WRITE, (order.number, order.total))
    print(f"billed {order.number}, attempt {delivery.number}", flush=True)
    receipt: dict[str, Any] = {"order": order.number, "paid": order.total}
    return NatsResponse(receipt, headers={"Nats-Msg-Id": delivery.downstream_key("receipt")})


@app.on_startup
async def prepare() -> None:
    """The tables are there, and every subscriber is one that an inbox can protect."""
    once_each.check(broker)
    async with await psycopg.AsyncConnection.connect(DATABASE, autocommit=True) as connection:
        await connection.execute(TABLE)
    await inbox.migrate()


@app.after_shutdown
async def leave() -> None:
    await inbox.aclose()
