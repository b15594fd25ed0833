"""A process that is one service: `python -m examples.chain.worker payments --database URL ...`.

It catches nothing. Whatever goes wrong ends it, and whoever started it starts it again, as a
supervisor does. It ends when its standard input does.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time

from examples.chain.brokers import Reader, reader_of, sender_to
from examples.chain.database import Database
from examples.chain.points import Points, Watched
from examples.chain.services import SERVICES, Service, place
from oncekey.messages import Inbox
from oncekey.outbox import Outbox, Relay

POLL = "50ms"


def prepare(service: Service, database: Database, tables: tuple[str, ...]) -> None:
    """Make all tables of the service."""
    for table in tables:
        database.ask(f"CREATE TABLE IF NOT EXISTS {table}")
    outbox, inbox = Outbox(database.url), Inbox(database.url, service.name)
    outbox.migrate()
    inbox.migrate()
    outbox.close()
    inbox.close()


def consume(
    service: Service, database: Database, reader: Reader, points: Points, outbox: Outbox
) -> None:
    """Process messages for ever."""
    assert service.work is not None
    inbox = Inbox(database.url, service.name)
    while True:
        for message, acknowledge in reader.next():
            with (
                database.transaction() as connection,
                inbox.atomic(connection, message) as delivery,
            ):
                if delivery.duplicate:
                    database.run(
                        connection,
                        "INSERT INTO repeats VALUES (?, ?)",
                        message.find("order"),
                        time.time(),
                    )
                else:
                    service.work(database, connection, outbox, message, delivery)
                points.reach("before commit")
            points.reach("after commit")
            acknowledge()


def take_orders(
    database: Database, points: Points, outbox: Outbox, orders: int, pace: float
) -> None:
    """Take so many orders, going on where the last process ended, and then no more."""
    ((last,),) = database.ask("SELECT COALESCE(max(number), 0) FROM orders")
    for number in range(last + 1, orders + 1):
        with database.transaction() as connection:
            place(database, connection, outbox, number)
            points.reach("before commit")
        points.reach("after commit")
        time.sleep(pace)
    threading.Event().wait()  # the relay goes on


def relay(source: str, to: str, lease: float, points: Points) -> None:
    """Send what the service commits, for ever."""
    target = Watched(sender_to(to), points)
    Relay(source, target, lease=lease, timeout=lease / 2, poll=POLL).run()


def in_thread(work: object, *arguments: object) -> None:
    """Run the function in a thread, whose end is the end of the process."""

    def run() -> None:
        try:
            work(*arguments)  # type: ignore[operator]
        finally:
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


def main(arguments: list[str]) -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m examples.chain.worker", description=__doc__)
    parser.add_argument("name", choices=SERVICES)
    parser.add_argument("--database", required=True)
    parser.add_argument("--reads", default="")
    parser.add_argument("--sends", default="")
    parser.add_argument("--orders", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--lease", type=float, default=2.0, help="of the relay, in seconds")
    parser.add_argument("--die", action="append", default=[])
    said = parser.parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)  # whoever started it tells what happens
    service, database, points = SERVICES[said.name], Database(said.database), Points(said.die)
    outbox = Outbox(said.database)
    in_thread(sys.stdin.read)
    if said.sends:
        in_thread(relay, said.database, said.sends, said.lease, points)
    if service.reads is None:
        take_orders(database, points, outbox, said.orders, said.pace)
    else:
        reader = reader_of(said.reads, service.reads, service.name)
        consume(service, database, reader, points, outbox)


if __name__ == "__main__":
    main(sys.argv[1:])
