"""Events as metrics, read as Prometheus reads them."""

from typing import get_args

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from oncekey import Once
from oncekey.errors import ConfigurationError, StoreError
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
    assert {found: count for found, count in counted.items() if count} == {
        (("result", FOUND[name]),): 1.0
    }
    assert samples(registry, "idempotency_check_duration_seconds_count") == {(): 1.0}
    assert samples(registry, "idempotency_check_duration_seconds_sum") == {(): 0.02}


@pytest.mark.parametrize("name", sorted(set(get_args(Name)) - set(FOUND)))
def test_what_is_no_check_is_not_counted_as_one(registry, observer, name):
    observer(Event(name=name, key="k", seconds=5.0))
    assert set(samples(registry, "idempotency_check_total").values()) == {0.0}
    assert samples(registry, "idempotency_check_duration_seconds_count") == {(): 0.0}


NOUNS = {
    "new": "runs",
    "taken_over": "takeovers",
    "duplicate": "duplicates",
    "waiting": "waits",
    "busy": "busy",
    "reused": "mismatches",
    "held": "held",
    "refused": "refusals",
    "unprotected": "unprotected_runs",
    "completed": "completions",
    "failed": "failures",
    "released": "releases",
    "lost": "lost_leases",
    "not_kept": "results_not_kept",
    "not_recorded": "unrecorded",
    "never_recorded": "never_recorded",
    "renewal_failed": "failed_renewals",
    "resolved": "resolutions",
    "forgotten": "forgotten",
}
ALONE = {"purged", "breaker_opened", "breaker_closed"}


def test_every_event_is_counted():
    assert {*NOUNS, *ALONE} == set(get_args(Name))


@pytest.mark.parametrize("name", NOUNS)
def test_an_event_of_a_call_is_counted_with_its_surface_and_task(registry, observer, name):
    for key in ("k", "other"):
        observer(Event(name=name, key=key, label="charge", surface="job"))
    observer(Event(name=name, key="k", label="charge", surface="http"))
    why = (("reason", "store-down"),) if name == "unprotected" else ()
    assert samples(registry, f"oncekey_{NOUNS[name]}_total") == {
        (*why, ("surface", "job"), ("task_type", "charge")): 2.0,
        (*why, ("surface", "http"), ("task_type", "charge")): 1.0,
    }


def test_a_request_that_was_not_checked_is_counted_by_its_reason_alone(registry, observer):
    for reason in ("no-owner", "not-claimed", "no-owner"):
        observer(Event(name="unprotected", key="k", surface="http", reason=reason))
    counted = samples(registry, "oncekey_unprotected_runs_total")
    assert {labels[0]: count for labels, count in counted.items()} == {
        ("reason", "no-owner"): 2.0,
        ("reason", "not-claimed"): 1.0,
    }
    assert not any(samples(registry, "idempotency_check_total").values())


def test_bytes_that_were_stored_are_counted(registry, observer):
    for size in (100, 0, 23):
        observer(Event(name="completed", label="charge", size=size))
    observer(Event(name="failed", label="charge", size=7))
    expected = {(("surface", "function"), ("task_type", "charge")): 130.0}
    assert samples(registry, "oncekey_stored_bytes_total") == expected


def test_what_was_purged_counts_as_often_as_it_says(registry, observer):
    observer(Event(name="purged", count=12))
    assert samples(registry, "oncekey_purged_total") == {(): 12.0}


def test_breakers_that_are_open_are_known(registry, observer):
    for name, wanted in [("opened", 1), ("opened", 2), ("closed", 1), ("closed", 0)]:
        observer(Event(name=f"breaker_{name}"))
        assert samples(registry, "oncekey_open_breakers") == {(): wanted}
    assert samples(registry, "oncekey_breaker_openings_total") == {(): 2.0}


def test_a_run_that_ends_as_held_is_no_check(registry, observer):
    observer(Event(name="held", key="k", attempt=1))
    assert set(samples(registry, "idempotency_check_total").values()) == {0.0}
    observer(Event(name="held", key="k"))
    assert samples(registry, "idempotency_check_total")[("result", "duplicate"),] == 1.0
    assert list(samples(registry, "oncekey_held_total").values()) == [2.0]


def test_tasks_beyond_a_number_are_counted_together(registry):
    observer = PrometheusObserver(registry, most_tasks=2)
    for number in range(5):
        for _ in range(2):
            observer(Event(name="new", label=f"task-{number}"))
    observer(Event(name="duplicate", label="task-1"))
    runs = {
        dict(labels)["task_type"]: value
        for labels, value in samples(registry, "oncekey_runs_total").items()
    }
    assert runs == {"task-0": 2.0, "task-1": 2.0, "(other)": 6.0}
    assert len(samples(registry, "oncekey_duplicates_total")) == 1


@pytest.mark.parametrize("wrong", [0, -1, True, "many", None])
def test_a_number_of_tasks_must_be_one(registry, wrong):
    with pytest.raises(ConfigurationError, match="most_tasks must be a whole number above zero"):
        PrometheusObserver(registry, most_tasks=wrong)


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
    before = set(REGISTRY._collector_to_names)
    observer = PrometheusObserver()
    try:
        observer(Event(name="duplicate"))
        assert REGISTRY.get_sample_value("idempotency_check_total", {"result": "duplicate"}) == 1
    finally:
        for collector in set(REGISTRY._collector_to_names) - before:
            REGISTRY.unregister(collector)


@pytest.mark.row("J10")
def test_calls_are_counted_through_the_front_door(registry, observer):
    once = Once(MemoryStore(), observers=[observer])
    for _ in range(3):
        once.run("k", lambda: 7)
    assert samples(registry, "idempotency_check_total") == {
        (("result", "new"),): 1.0,
        (("result", "duplicate"),): 2.0,
        (("result", "error"),): 0.0,
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
    assert samples(registry, "idempotency_check_total")[("result", "error"),] == 1.0
    assert samples(registry, "idempotency_check_duration_seconds_sum")[()] > 0


def test_what_is_not_counted_counts_nothing(registry, observer):
    before = [(one.name, one.labels, one.value) for m in registry.collect() for one in m.samples]
    observer(Event(name="new occurrence"))
    after = [(one.name, one.labels, one.value) for m in registry.collect() for one in m.samples]
    assert after == before
