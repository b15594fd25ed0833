"""What happens to events is counted, by domain and never by job, as Prometheus reads it."""

import threading
from contextlib import aclosing
from typing import get_args

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from oncekey import ConfigurationError
from oncekey.events import (
    AsyncBus,
    BackpressureError,
    Bus,
    Memory,
    Resync,
    Router,
    Stages,
    shard_of,
)
from oncekey.events.observers import Happening, Name
from oncekey.events.prometheus import PrometheusObserver
from tests.events.ways import collected
from tests.patience import PATIENCE, until

JOB = "job-1"
TAG = f"{{scan:{shard_of(JOB, 4)}}}"
MANY = Stages({"work": (0, 9999)})


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def observer(registry):
    return PrometheusObserver(registry)


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def open_router(empty_redis, observer):
    opened = []

    def start(**options):
        opened.append(Router(empty_redis.url, domain="scan", observers=[observer], **options))
        return opened[-1]

    yield start
    for router in opened:
        router.close()


def counted(registry):
    """The values that are not zero, by name and labels, as they are exposed."""
    text = generate_latest(registry).decode()
    return {
        (sample.name.removeprefix("oncekey_events_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created") and sample.value
    }


async def test_publishing_is_counted_by_what_became_of_it(system, registry, observer):
    bus = system.bus(stages=MANY, observers=[observer])
    for seq in (1, 2, 3):
        await bus.publish(JOB, "work", seq, seq=seq)
    await bus.publish(JOB, "work", 1, seq=1)
    await bus.publish(JOB, "work", "other", seq=2)
    await bus.publish_batch([(JOB, "work", n, n) for n in range(3, 6)])
    await system.bus("chat", stages=MANY, observers=[observer]).publish(JOB, "work", 1, seq=1)
    assert (await bus.read(JOB, after="nonsense")).resync == Resync("foreign")
    assert counted(registry) == {
        ("published_total", "scan"): 5,
        ("duplicates_total", "scan"): 3,
        ("differing_total", "scan"): 1,
        ("published_total", "chat"): 1,
        ("resyncs_total", "scan", "foreign"): 1,
    }


async def test_those_who_follow_are_counted_while_they_do(system, registry, observer):
    bus = system.watcher(stages=MANY, observers=[observer])
    await bus.publish(JOB, "work", 1, seq=1)
    async with aclosing(bus.subscribe(JOB)) as one, aclosing(bus.subscribe(JOB)) as other:
        await anext(one)
        await anext(other)
        assert counted(registry)["followers", "scan"] == 2
    await collected(bus, JOB, 2, after="ab.1.cd")
    assert counted(registry) == {
        ("published_total", "scan"): 1,
        ("resyncs_total", "scan", "epoch"): 1,
    }


def test_trimming_and_refusals_are_counted(empty_redis, client, registry, observer, open_router):
    options = {"stages": MANY, "length": 10, "most": 20, "observers": [observer]}
    with Bus(empty_redis.url, domain="scan", **options) as bus:
        for seq in range(20):
            bus.publish(JOB, "work", seq, seq=seq)
        for _ in range(2):
            with pytest.raises(BackpressureError):
                bus.publish(JOB, "work", 20, seq=20)
        open_router(length=10).step()
        assert counted(registry)["trimmed_total", "scan"] == 10
        for seq in range(20, 26):  # no router is needed for what one has acknowledged
            bus.publish(JOB, "work", seq, seq=seq)
            open_router(length=1000).step()
    figures = counted(registry)
    assert figures["refused_total", "scan"] == 2
    assert figures["routed_total", "scan"] == figures["published_total", "scan"] == 26
    assert figures["trimmed_total", "scan"] == 26 - client.xlen(f"{TAG}:events") > 10


def test_what_a_router_meets_is_counted(empty_redis, client, registry, open_router):
    with Bus(empty_redis.url, domain="scan", stages=MANY) as bus:
        for seq in range(4):
            bus.publish(JOB, "work", seq, seq=seq)
    client.xadd(f"{TAG}:events", {"a": "1"})
    client.xgroup_create(f"{TAG}:events", "router", "0")
    [(_, taken)] = client.xreadgroup("router", "dead", {f"{TAG}:events": ">"}, count=3)
    client.xdel(f"{TAG}:events", taken[0][0])
    router = open_router(claim_after="1ms")

    def reclaimed():
        router.step()
        return counted(registry).get(("reclaimed_total", "scan")) == 2

    until(reclaimed)
    assert counted(registry) == {
        ("routed_total", "scan"): 3,
        ("reclaimed_total", "scan"): 2,
        ("lost_total", "scan"): 1,
        ("dead_total", "scan"): 1,
    }


def test_the_dead_are_bounded(empty_redis, client, registry, open_router):
    router = open_router(dead_length=50)
    for _ in range(10):
        for number in range(100):
            client.xadd(f"{TAG}:events", {"a": str(number)})
        router.step()
    assert counted(registry)["dead_total", "scan"] == 1000
    assert 50 <= client.xlen(f"{TAG}:dead") < 250, "whole parts of the stream go at once"
    assert client.xrevrange(f"{TAG}:dead", count=1)[0][1][b"a"] == b"99", "the newest stay"


@pytest.mark.parametrize("name", get_args(Name))
def test_everything_that_can_happen_is_a_metric_of_the_domain_alone(registry, observer, name):
    reason = "mark" if name == "resync" else ""
    observer(Happening(name=name, domain="scan", count=3, reason=reason))
    [(figure, *labels)] = counted(registry)
    assert figure == "followers" or figure.endswith("_total")
    assert labels == ["scan", *([reason] if reason else [])]


async def test_an_observer_that_fails_stops_nothing(caplog):
    def broken(happening):
        raise RuntimeError(happening.name)

    bus = AsyncBus(Memory(), domain="scan", observers=[broken])
    assert await bus.publish(JOB, "vision", 1, seq=10)
    assert [event.seq for event in await collected(bus, JOB, 1)] == [10]
    assert "an observer failed on published" in caplog.text
    assert "an observer failed on joined" in caplog.text


@pytest.mark.parametrize("kind", [Bus, AsyncBus])
def test_what_cannot_observe_is_refused(kind):
    with pytest.raises(ConfigurationError, match="a callable that takes one happening, not 7"):
        kind("memory://", domain="scan", observers=[7])
    with pytest.raises(ConfigurationError, match="observers must be a list"):
        kind("memory://", domain="scan", observers=print)
    with pytest.raises(ConfigurationError, match="a callable that takes one happening, not 7"):
        Router("redis://localhost", domain="scan", observers=[7])


def test_a_router_tells_from_all_its_threads(empty_redis, registry, open_router):
    """Nothing is lost between them."""
    jobs = [f"job-{number}" for number in range(40)]
    with Bus(empty_redis.url, domain="scan", stages=MANY) as bus:
        for job in jobs:
            bus.publish_batch([(job, "work", n, n) for n in range(25)])
    router = open_router()
    thread = threading.Thread(target=router.run)
    thread.start()
    try:
        until(lambda: counted(registry).get(("routed_total", "scan")) == 1000)
    finally:
        router.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_usual_registry_is_the_one_of_the_process():
    PrometheusObserver()
    try:
        names = {metric.name for metric in REGISTRY.collect()}
        assert {"oncekey_events_published", "oncekey_events_followers"} <= names
    finally:
        for collector in list(REGISTRY._collector_to_names):
            if any(
                n.startswith("oncekey_events_") for n in REGISTRY._collector_to_names[collector]
            ):
                REGISTRY.unregister(collector)
