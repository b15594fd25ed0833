"""Every metric, seen where it comes from: real calls on every surface, and stores in trouble."""

import asyncio
import threading

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from oncekey import Once, StoreError
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.jobs import enqueue_once, handler
from oncekey.messages import Inbox, Message
from oncekey.policy import Policy
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.patience import PATIENCE, until, until_async


@pytest.mark.row("W8")
async def test_the_rate_of_duplicates_and_the_ratio_of_hits_are_known_for_requests(watched):
    once = Once(MemoryStore(), observers=watched.observers())

    async def order(request):
        return JSONResponse(await request.json())

    middleware = Middleware(IdempotencyMiddleware, once=once, scope=None, routes=["/orders"])
    app = Starlette(routes=[Route("/orders", order, methods=["POST"])], middleware=[middleware])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://shop"
    ) as client:
        for key, item in [("a", 1), ("b", 1), ("a", 1), ("a", 1), ("a", 2)]:
            headers = {"Idempotency-Key": key}
            await client.post("/orders", json={"item": item}, headers=headers)
    seen = {"surface": "http", "task_type": "POST /orders"}
    runs = watched.sample("oncekey_runs_total", **seen)
    hits = watched.sample("oncekey_duplicates_total", **seen)
    mismatches = watched.sample("oncekey_mismatches_total", **seen)
    assert (runs, hits, mismatches) == (2, 2, 1)
    assert watched.sample("oncekey_stored_bytes_total", **seen) > 0
    assert watched.sample("idempotency_check_total", result="duplicate") == 3


def test_each_surface_is_told_apart(watched, tmp_path):
    once = Once(f"sqlite:///{tmp_path}/once.db", observers=watched.observers())

    def ship(order):
        return order

    job = handler(once, lambda order: order, ship, name="ship")
    inbox = Inbox(once, consumer="post")
    for _ in range(2):
        once.options(label="charge").run("k", ship, "1")
        job("1")
        enqueue_once(once, "1", lambda headers: "handle", name="ship")
        once.check("k")
        with inbox.leased(Message(id="m-1", type="mail")):
            pass
    once.close()
    repeated = {
        (line.partition('surface="')[2].partition('"')[0])
        for line in watched.metrics()
        if line.startswith("oncekey_duplicates_total{") and line.endswith(" 1.0")
    }
    assert repeated == {"function", "job", "enqueue", "mark", "message"}


def test_a_breaker_that_opens_is_seen_and_seen_to_close(watched):
    store = FaultyStore(MemoryStore())
    once = Once(store, observers=watched.observers())
    assert watched.sample("oncekey_open_breakers") == 0
    store.cut_off("claim", 3)
    store.cut_off("get", 10_000)
    for _ in range(4):
        with pytest.raises(StoreError):
            once.run("k", lambda: 7)
    assert watched.sample("oncekey_open_breakers") == 1
    store.heal()
    until(lambda: watched.sample("oncekey_open_breakers") == 0)
    assert watched.sample("oncekey_breaker_openings_total") == 1
    assert once.run("k", lambda: 7) == 7
    words = [line for line in watched.lines() if "store in trouble" in line]
    assert len(words) == 1


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_who_waits_is_counted(watched, place):
    store = MemoryStore()
    observers = watched.observers()
    patient = {"label": "charge", "fingerprint": None, "wait": PATIENCE}
    once = Once(store, observers=observers).options(**patient)
    other = once if place == "here" else Once(store, observers=observers).options(**patient)
    inside, go_on = threading.Event(), threading.Event()

    def slow():
        inside.set()
        assert go_on.wait(PATIENCE)
        return 7

    first = threading.Thread(target=once.run, args=("k", slow))
    first.start()
    assert inside.wait(PATIENCE)
    answers = []
    second = threading.Thread(target=lambda: answers.append(other.run("k", slow)))
    second.start()
    labels = {"surface": "function", "task_type": "charge"}
    until(lambda: watched.sample("oncekey_waits_total", **labels))
    go_on.set()
    first.join()
    second.join()
    assert answers == [7]
    assert watched.sample("oncekey_waits_total", **labels) == 1


async def test_coroutines_that_wait_are_counted_too(watched):
    once = Once(MemoryStore(), observers=watched.observers())
    once = once.options(label="charge", wait=PATIENCE)
    labels = {"surface": "function", "task_type": "charge"}

    async def slow():
        await until_async(lambda: watched.sample("oncekey_waits_total", **labels) == 2)
        return 7

    assert await asyncio.gather(*(once.run_async("k", slow) for _ in range(3))) == [7, 7, 7]
    assert watched.sample("oncekey_waits_total", **labels) == 2


def test_what_is_purged_by_hand_is_counted(watched):
    clock = FakeClock()
    once = Once(MemoryStore(clock=clock), observers=watched.observers())
    for key in "abc":
        once.run(key, lambda: 7)
    clock.advance("25h")
    assert once.purge() == 3
    assert watched.sample("oncekey_purged_total") == 3


def test_ends_of_all_kinds_are_counted_with_their_bytes(watched):
    policy = Policy(keep=(KeyError,), on_crash="hold", max_result=64)
    once = Once(MemoryStore(), observers=watched.observers(), policy=policy).options(label="t")

    def end(error=None, size=10):
        if error is not None:
            raise error
        return "x" * size

    once.run("a", end)
    once.run("large", end, None, 1000)
    for key, error in [("b", KeyError("b")), ("c", ValueError()), ("d", TimeoutError())]:
        with pytest.raises(type(error)):
            once.options(fingerprint=None).run(key, end, error)
    labels = {"surface": "function", "task_type": "t"}
    counted = {
        noun: watched.sample(f"oncekey_{noun}_total", **labels)
        for noun in ("runs", "completions", "failures", "releases", "held", "results_not_kept")
    }
    assert counted == {
        "runs": 5, "completions": 2, "failures": 1, "releases": 1, "held": 1,
        "results_not_kept": 1,
    }  # fmt: skip
    kept = len(once.get("a").result) + len(once.get("b").error)
    assert watched.sample("oncekey_stored_bytes_total", **labels) == kept
