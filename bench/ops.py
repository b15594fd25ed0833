"""What looking costs with a million records: ls, stats and the dashboard's list on every store.

Each is held against one read by primary key through the same driver, of a key chosen at random.
It exits with 1 when one of them takes more than fifty times as long, but with 0 when it is quick.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import psycopg
import redis

from bench.cases.full_stores import SCOPE, fill_postgres, fill_redis, fill_sqlite, key_of
from bench.redis_server import redis_server
from bench.timing import Side, Timings, interleave
from oncekey.inspection.listing import count_records, list_records
from oncekey.stores import RedisStore
from oncekey.stores.base import Store
from oncekey.stores.browse import RecordQuery
from oncekey.stores.redis.browse import correct_held
from tests.servers.postgres import serving

_MOST: Final = 50.0
_CALLS: Final = 10
_QUICK: Final = 2_000, 2
_READ: Final = "one read by primary key"
_SQLITE_READ: Final = "SELECT * FROM oncekey_records WHERE scope = ? AND key = ?"
_POSTGRES_READ: Final = "SELECT * FROM oncekey_records WHERE scope = %s AND key = %s"

Read = Callable[[str], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, measure and report, one store after the other."""
    parser = argparse.ArgumentParser(prog="python -m bench.ops", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="how many in each store")
    parser.add_argument("--rounds", type=int, default=21, help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="only see that all of it runs")
    asked = parser.parse_args(arguments)
    if asked.rounds < 2:
        parser.error("--rounds must be 2 or more, so that there is something between them")
    count, rounds = _QUICK if asked.quick else (asked.records, asked.rounds)
    missed = 0
    print(f"{count:,} records; the median of {rounds} rounds")
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-ops-")))
        for name, store, read in _stores(folder, count):
            missed += _measured(name, store, read, count, rounds)
    return 1 if missed and not asked.quick else 0


def _stores(folder: Path, count: int) -> Iterator[tuple[str, Store, Read]]:
    """Each store, full, and its read by primary key; gone when the next one comes."""
    path = folder / "records.db"
    with (
        closing(fill_sqlite(path, count, time.time_ns() // 1000)) as file,
        closing(sqlite3.connect(path)) as raw,
    ):
        yield "SQLite", file, lambda key: raw.execute(_SQLITE_READ, (SCOPE, key)).fetchone()
    with serving() as server:
        url = server.new_database()
        database = fill_postgres(url, count)
        with closing(database), psycopg.connect(url, autocommit=True) as line:

            def read(key: str) -> object:
                return line.execute(_POSTGRES_READ, (SCOPE, key), prepare=True).fetchone()

            yield "PostgreSQL", database, read
    with redis_server() as place, closing(redis.Redis(port=place.port)) as client:
        fill_redis(client, count)
        prefix = f"idempotency:{SCOPE}/"
        full = RedisStore(client)
        correct_held(full)  # they were written past the scripts that keep the set of held ones
        yield "Redis", full, lambda key: client.get(prefix + key)


def _measured(name: str, store: Store, read: Read, count: int, rounds: int) -> int:
    """How many of the targets were missed."""
    assert read(key_of(random.randrange(count)))  # noqa: S311 - any key will do
    second = list_records(store, RecordQuery()).after
    sides = {
        _READ: Side(_times(lambda: read(key_of(random.randrange(count)))), 20 * _CALLS),  # noqa: S311 - the same
        "ls, and the list of the page: 100 records": _side(
            lambda: list_records(store, RecordQuery())
        ),
        "the page that follows": _side(lambda: list_records(store, RecordQuery(after=second))),
        "a page of held ones": _side(lambda: list_records(store, RecordQuery(status="held"))),
        "stats": _side(lambda: count_records(store)),
    }
    timings = interleave(sides, rounds=rounds, tick=lambda: None)
    told = count_records(store)
    print(f"\n{name}: {_READ} took {timings.per_call(_READ) * 1e6:,.0f} µs")
    print(f"  {told.total:,} in all by stats, {'exact' if told.exact else 'sampled'}")
    return sum(_reported(timings, side) for side in sides if side != _READ)


def _reported(timings: Timings, side: str) -> bool:
    """Whether the target was missed."""
    cost = timings.cost(side, _READ)
    missed = cost.median > _MOST
    verdict = "MISSED" if missed else "ok"
    print(
        f"  {side}: {timings.per_call(side) * 1e6:,.0f} µs, {cost.median:.1f}x "
        f"({cost.low:.1f} to {cost.high:.1f}); target at most {_MOST:.0f}x: {verdict}"
    )
    return missed


def _side(call: Callable[[], Any]) -> Side:
    return Side(_times(call), _CALLS)


def _times(call: Callable[[], Any]) -> Callable[[int], None]:
    def work(calls: int) -> None:
        for _ in range(calls):
            call()

    return work


if __name__ == "__main__":
    sys.exit(main())
