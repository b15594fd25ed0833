"""300,000 records on each store: numbers are those of a count by hand, and pages miss nothing."""

import json
import re
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from threading import Event, Thread

import httpx
import pytest

from bench.cases.full_stores import fill_postgres, fill_redis, fill_sqlite, key_of
from oncekey import Once
from oncekey.dashboard import Dashboard
from oncekey.exporter import exposition
from oncekey.inspection.listing import list_records
from oncekey.stores import RedisStore
from oncekey.stores.browse import STATUSES, RecordQuery
from oncekey.stores.redis.browse import correct_held
from tests.cli.page import environment
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["_shared_database", "empty_postgres_url", "empty_redis", "postgres", "redis_server"]

MANY = 300_000
SOME = 32_700
"""A few more, and the table of keys of a Redis grows."""
KINDS = ("sqlite", "redis", "postgres")
TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing


def by_hand(count):
    """How many there are of each status, counted one by one as `full_stores` describes them."""
    counted = Counter(dict.fromkeys(STATUSES, 0))
    for n in range(1, count + 1):
        if n > count - 50:
            counted["running"] += 1
        elif n % 1000 == 7:
            counted["held"] += 1
        else:
            counted["completed" if n % 50 else "failed"] += 1
    return dict(counted)


def filled(kind, count, request, tmp_path):
    """The store with so many records, and its URL."""
    if kind == "sqlite":
        path = tmp_path / "records.db"
        return fill_sqlite(path, count, time.time_ns() // 1000), f"sqlite:///{path}"
    if kind == "postgres":
        url = request.getfixturevalue("empty_postgres_url")
        return fill_postgres(url, count), url
    server = request.getfixturevalue("empty_redis")
    with server.client() as client:
        fill_redis(client, count)
    store = RedisStore.from_url(server.url)
    correct_held(store)  # they were written past the scripts that keep the set
    return store, server.url


@contextmanager
def others_come_and_go(store):
    """Records that are made and forgotten all the time."""
    ended = Event()
    once = Once(store, observers=(), cache=False).options(scope="others")

    def come_and_go():
        number = 0
        while not ended.is_set():
            once.run(f"other:{number}", lambda: 1)
            if number % 3:
                once.forget(f"other:{number - 1}")
            number += 1

    thread = Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("limit", "count"), [(3, SOME), (10, SOME), (50, MANY), (500, MANY)])
def test_pages_list_every_record_that_stays(kind, limit, count, request, tmp_path):
    store, _ = filled(kind, count, request, tmp_path)
    listed = Counter()
    ask = RecordQuery(limit=limit)
    with others_come_and_go(store):
        while True:
            page = list_records(store, ask)
            listed.update(one.key for one in page.records if one.scope == "billing")
            if page.after is None:
                break
            ask = RecordQuery(limit=limit, after=page.after)
    store.close()
    assert listed.keys() == {key_of(number) for number in range(count)}
    assert kind == "redis" or set(listed.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_number_is_that_of_a_count_by_hand(kind, request, tmp_path):
    store, url = filled(kind, MANY, request, tmp_path)
    hand = by_hand(MANY)

    def oncekey(*words: str) -> str:
        done = subprocess.run(
            ["oncekey", *words],  # noqa: S607 - the one beside this interpreter
            cwd=tmp_path,
            env={**environment(), "ONCEKEY_STORE": url},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    exact = json.loads(oncekey("stats", "--exact", "--json"))
    assert (exact["exact"], exact["total"], exact["by_status"]) == (True, MANY, hand)
    sampled = json.loads(oncekey("stats", "--json"))
    assert sampled["by_status"] == {"held": hand["held"]}, "only what was counted is a number"
    assert sampled["estimated"]["total"] == pytest.approx(MANY, rel=0.3)
    for status in ("held", "running"):
        names = oncekey("ls", "--status", status, "--limit", "0", "--json").splitlines()
        assert len({json.loads(line)["name"] for line in names}) == len(names) == hand[status]
    plan = json.loads(oncekey("resolve-all", "--retry", "--dry-run", "--json"))
    assert plan == {"matches": hand["held"]}
    plan = json.loads(oncekey("forget-all", "--status", "failed", "--dry-run", "--json"))
    assert plan == {"matches": hand["failed"]}
    assert f"\noncekey_held_records {hand['held']}\n" in exposition(store)

    once = Once(store, observers=())
    transport = httpx.ASGITransport(app=Dashboard(once, token=TOKEN))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as browser:
        await browser.post("/login", data={"token": TOKEN})
        page = (await browser.get("/")).text
    shown = dict(re.findall(r'data-text="status-(\w+)">([^<]*)<', page))
    assert shown["held"] == str(hand["held"])
    others = [shown[status] for status in STATUSES if status != "held"]
    assert all(number.startswith(("about ", "none seen")) for number in others)
    once.close()
