"""What the three services do. Each is a function that works in one open transaction.

The row, the mark of the inbox and the message of the outbox are committed together, or not at all.
So there is nothing to undo, wherever a process dies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from examples.chain.database import Database
from oncekey.messages import Message
from oncekey.messages.delivery import Delivery
from oncekey.outbox import Outbox

PLACED: Final = "orders.placed"
CHARGED: Final = "payments.charged"


@dataclass(frozen=True)
class Service:
    """What a service has, and what it does with a message."""

    name: str
    table: str
    reads: str | None
    """The destination that it reads; the first service reads none."""
    work: Callable[[Database, Any, Outbox, Message, Delivery], object] | None = None


def place(database: Database, connection: Any, outbox: Outbox, number: int) -> None:
    """Take an order, and tell payments."""
    amount = 500 + number % 40 * 125
    database.run(connection, "INSERT INTO orders VALUES (?, ?, ?)", number, amount, time.time())
    outbox.put(
        connection,
        Message(type="order.placed", body={"order": number, "amount": amount}),
        to=PLACED,
        key=f"order-{number}",
    )


def charge(
    database: Database, connection: Any, outbox: Outbox, message: Message, delivery: Delivery
) -> None:
    """Charge for an order, and tell mail. Nothing but the inbox prevents a second charge."""
    number, amount = message.find("order"), message.find("amount")
    database.run(connection, "INSERT INTO charges VALUES (?, ?, ?)", number, amount, time.time())
    outbox.put(
        connection,
        Message(type="payment.charged", body={"order": number, "amount": amount}),
        to=CHARGED,
        key=f"order-{number}",
        sender=delivery,
    )


def mail(database: Database, connection: Any, _: Outbox, message: Message, __: Delivery) -> None:
    """Write the receipt. Nothing but the inbox prevents a second one."""
    number, amount = message.find("order"), message.find("amount")
    text = f"Order {number}: {amount / 100:.2f} EUR, paid"
    database.run(connection, "INSERT INTO mails VALUES (?, ?, ?)", number, text, time.time())


SERVICES: Final = {
    one.name: one
    for one in (
        Service(
            "orders",
            "orders (number INTEGER PRIMARY KEY, amount INTEGER, placed_at DOUBLE PRECISION)",
            None,
        ),
        Service(
            "payments",
            "charges (number INTEGER, amount INTEGER, charged_at DOUBLE PRECISION)",
            PLACED,
            charge,
        ),
        Service(
            "mail",
            "mails (number INTEGER, text TEXT, mailed_at DOUBLE PRECISION)",
            CHARGED,
            mail,
        ),
    )
}
REPEATS: Final = "repeats (number INTEGER, seen_at DOUBLE PRECISION)"
"""What an inbox knew again, for those who want to see that it was needed."""
