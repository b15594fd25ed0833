"""What a transaction costs the processor, on the client's side and on PostgreSQL's.

`python -m bench.processor` makes the calls of the benchmarks of PostgreSQL in turn, beside the same
by hand, and reads the clocks of processor time of this process and of the server's: on a busy
machine they are truer than what a clock on the wall says. With PYTHONPATH set to the `src` of
another tree it measures that one. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, Final

import psycopg

from bench.cases import inbox as messages
from bench.cases import outbox as puts
from bench.cases import postgres as pairs
from bench.cases.where import settled
from bench.subject import new_order
from bench.timing import without_collector
from oncekey import Once
from oncekey.messages import Inbox
from oncekey.messages.drivers.detection import pyformat
from oncekey.messages.statements import POSTGRES
from oncekey.outbox import Outbox
from oncekey.outbox.statements import OUTBOX_SCHEMA, outbox_statements
from tests.servers.postgres import PostgresServer, serving

_CALLS: Final = 50
_BEST: Final = 5
"""The best fifth of the rounds counts."""
_BACKENDS: Final = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
"""

Works = dict[str, Callable[[int], None]]


@contextmanager
def _outbox(server: PostgresServer) -> Iterator[tuple[str, Works]]:
    """A transaction with one insert, and with a message as well."""
    url = server.new_database()
    with ExitStack() as stack:
        outbox = stack.enter_context(closing(Outbox(url)))
        outbox.migrate()
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(puts.TABLE)
        connection.execute(puts.BY_HAND)
        ((_, _, identity),) = connection.execute(OUTBOX_SCHEMA.read.encode()).fetchall()
        bare = partial(_put_bare, connection, identity)
        yield (
            url,
            {
                "transaction with one insert": puts.transactions(connection),
                "and an insert by hand, in a table with two indexes": puts.transactions(
                    connection, partial(puts.put_by_hand, connection)
                ),
                "and the outbox's statement by hand": puts.transactions(connection, bare),
                "and a put": puts.transactions(
                    connection, partial(puts.put_one, outbox, connection)
                ),
            },
        )


def _put_bare(connection: psycopg.Connection, identity: str, number: str) -> None:
    """Send what a put sends, with nothing checked or encoded."""
    values: dict[str, Any] = {
        "message_id": number,
        "destination": "orders.paid",
        "message_type": "order.paid",
        "attributes": "{}",
        "body": b'{"order":"o"}',
        "identity": identity,
        "key": None,
        "after": 0.0,
    }
    sql: Any = outbox_statements(POSTGRES)
    statement: str = getattr(sql, "put_prepared", sql.put)
    connection.execute(pyformat(statement).encode(), values)


@contextmanager
def _inbox(server: PostgresServer) -> Iterator[tuple[str, Works]]:
    """A transaction with one insert, and the same for a message."""
    url = server.new_database()
    with ExitStack() as stack:
        inbox = stack.enter_context(closing(Inbox(url, "bench", observers=())))
        inbox.migrate()
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(messages.TABLE)
        yield (
            url,
            {
                "transaction with one insert": messages.transactions(connection),
                "and claim and completion by hand": messages.by_hand(connection),
                "and an inbox": messages.messages(connection, inbox),
            },
        )


@contextmanager
def _store(server: PostgresServer) -> Iterator[tuple[str, Works]]:
    """A raw pair of statements, and a new key."""
    url = server.new_database()
    with ExitStack() as stack:
        once = stack.enter_context(closing(Once(url, cache=False, observers=())))
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute(pairs.TABLE)
        yield (
            url,
            {
                "raw pair of INSERT and UPDATE": pairs.pairs(connection),
                "claim and settle of the store": partial(_settled, once),
                "call with a new key": pairs.keys(once),
            },
        )


def _settled(once: Once, calls: int) -> None:
    for _ in range(calls):
        settled(once.store, new_order())


_PARTS: Final = {"outbox": _outbox, "inbox": _inbox, "store": _store}


def _clocks(asking: psycopg.Connection) -> list[int]:
    """Return the clocks of processor time of the server's processes for this database."""
    own = asking.info.backend_pid
    pids = [pid for (pid,) in asking.execute(_BACKENDS).fetchall() if pid != own]
    return [(~pid << 3) | 2 for pid in pids]  # as clock_getcpuclockid makes them


def _measured(works: Works, url: str, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the microseconds of each round, of this process and of the server."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for work in works.values():
        work(_CALLS)
    with psycopg.connect(url, autocommit=True) as asking:
        for number in range(rounds):
            clocks = _clocks(asking)  # a store may have opened one more connection
            order = list(works.items())
            for name, work in reversed(order) if number % 2 else order:
                with without_collector():
                    before = [time.process_time(), *map(time.clock_gettime, clocks)]
                    work(_CALLS)
                    after = [time.process_time(), *map(time.clock_gettime, clocks)]
                took = [(b - a) / _CALLS * 1e6 for a, b in zip(before, after, strict=True)]
                found[name].append((took[0], sum(took[1:])))
    return found


def _best(figures: list[float]) -> float:
    return statistics.mean(sorted(figures)[: max(1, len(figures) // _BEST)])


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(prog="python -m bench.processor", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"only these: {', '.join(_PARTS)}")
    parser.add_argument("--rounds", type=int, default=60)
    asked = parser.parse_args()
    if unknown := [name for name in asked.parts if name not in _PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(_PARTS)}")
    with serving() as server:
        for part in asked.parts or _PARTS:
            with _PARTS[part](server) as (url, works):
                found = _measured(works, url, asked.rounds)
            print(f"{part:52} {'client':>8} {'server':>8} {'both':>8}")
            first = 0.0
            for name, figures in found.items():
                client, served = (_best([one[side] for one in figures]) for side in (0, 1))
                first = first or client + served
                both = client + served
                told = f"{client:8.1f} {served:8.1f} {both:8.1f} {both / first:6.2f}x"
                print(f"  {name:50} {told}", flush=True)


if __name__ == "__main__":
    main()
