"""Events as metrics, read as Prometheus reads them."""

from typing import get_args

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from oncekey import Once
from oncekey.errors import StoreError
from oncekey.observe import Event, Name
from oncekey.observe.prometheus import PrometheusObserver
from oncekey.policy import Policy
from oncekey.stores import MemoryStore

FOUND = {
    "new": "new",
    "taken_over": "new",
    "duplicate": "duplicate",
    "busy": "duplicate",
    "reused": "duplicate",
    "held": "duplicate",
    "refused": "error",
    "unprotected": "error",
}


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def observer(registry):
    return PrometheusObserver(registry)


def samples(registry, name):
    """The values of a metric by its labels, as they are exposed."""
    text = generate_latest(registry).decode()
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.row("J10")
@pytest.mark.parametrize("name", FOUND)
def test_a_check_is_counted_by_what_it_found_and_timed(registry, observer, name):
    observer(Event(name=name, key="k", seconds=0.02))
    counted = samples(registry, "idempotency_check_total")
    assert counted == {(("result", FOUND[name]),): 1.0}
    assert samples(registry, "idempotency_check_duration_seconds_count") == {(): 1.0}
    assert samples(registry, "idempotency_check_duration_seconds_sum") == {(): 0.02}


@pytest.mark.parametrize("name", sorted(set(get_args(Name)) - set(FOUND)))
def test_what_is_no_check_is_not_counted_as_one(registry, observer, name):
    observer(Event(name=name, key="k", seconds=5.0))
    assert samples(registry, "idempotency_check_total") == {}
    assert samples(registry, "idempotency_check_duration_seconds_count") == {(): 0.0}


@pytest.mark.parametrize("name", get_args(Name))
def test_every_event_is_counted_with_its_task(registry, observer, name):
    observer(Event(name=name, key="k", label="charge"))
    observer(Event(name=name, key="other", label="charge"))
    expected = {(("event", name), ("task_type", "charge")): 2.0}
    assert samples(registry, "oncekey_events_total") == expected


def test_an_event_counts_as_often_as_it_says(registry, observer):
    observer(Event(name="purged", count=12))
    expected = {(("event", "purged"), ("task_type", "")): 12.0}
    assert samples(registry, "oncekey_events_total") == expected


def test_keys_are_never_labels(registry, observer):
    for name in get_args(Name):
        observer(Event(name=name, key="ann@example.org", scope="secret", label="mail"))
    assert b"example.org" not in generate_latest(registry)
    assert b"secret" not in generate_latest(registry)


def test_the_times_of_checks_are_told_apart_from_a_tenth_of_a_millisecond_up(registry, observer):
    observer(Event(name="new", seconds=0.0002))
    buckets = samples(registry, "idempotency_check_duration_seconds_bucket")
    assert buckets[(("le", "0.0001"),)] == 0
    assert buckets[(("le", "0.00025"),)] == 1


def test_without_a_registry_it_is_the_one_of_the_process():
    observer = PrometheusObserver()
    try:
        observer(Event(name="duplicate"))
        assert REGISTRY.get_sample_value("idempotency_check_total", {"result": "duplicate"}) == 1
    finally:
        for collector in (observer._checks, observer._seconds, observer._events):
            REGISTRY.unregister(collector)


@pytest.mark.row("J10")
def test_calls_are_counted_through_the_front_door(registry, observer):
    once = Once(MemoryStore(), observers=[observer])
    for _ in range(3):
        once.run("k", lambda: 7)
    assert samples(registry, "idempotency_check_total") == {
        (("result", "new"),): 1.0,
        (("result", "duplicate"),): 2.0,
    }
    assert samples(registry, "idempotency_check_duration_seconds_count") == {(): 3.0}
    assert samples(registry, "idempotency_check_duration_seconds_sum")[()] > 0


class Down(MemoryStore):
    def claim(self, ask, /):
        msg = "no way through"
        raise StoreError(msg, happened=False)


@pytest.mark.row("J10")
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_a_check_that_fails_is_counted_and_timed_in_both_modes(registry, observer, mode):
    once = Once(Down(), observers=[observer], policy=Policy(fail_mode=mode))
    try:
        once.run("k", lambda: 7)
    except StoreError:
        assert mode == "closed"
    assert samples(registry, "idempotency_check_total") == {(("result", "error"),): 1.0}
    assert samples(registry, "idempotency_check_duration_seconds_sum")[()] > 0
