"""What was counted is there whenever somebody collects: all of it, once, from every thread."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from oncekey.observe import Event
from oncekey.observe.prometheus import _BUCKETS, PrometheusObserver
from tests.patience import PATIENCE

THREADS, EACH = 4, 2000


def test_nothing_is_lost_or_counted_twice_while_somebody_collects():
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)

    def work(number):
        for _ in range(EACH):
            observer(Event(name="new", label=f"task-{number}", seconds=0.25))
            observer(Event(name="completed", label="task", size=3))

    def found(name, **labels):
        return registry.get_sample_value(name, labels)

    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(work, number) for number in range(THREADS)]
        seen = [0.0]
        while not all(one.done() for one in working):
            seen.append(found("idempotency_check_total", result="new"))
        for one in working:
            one.result()
    assert seen == sorted(seen)
    calls = THREADS * EACH
    labels = {"surface": "function", "task_type": "task"}
    assert found("oncekey_completions_total", **labels) == calls
    assert found("oncekey_stored_bytes_total", **labels) == 3 * calls
    assert found("idempotency_check_total", result="new") == calls
    assert found("idempotency_check_duration_seconds_count") == calls
    assert found("idempotency_check_duration_seconds_sum") == calls / 4
    for number in range(THREADS):
        one = {"surface": "function", "task_type": f"task-{number}"}
        assert found("oncekey_runs_total", **one) == EACH


def test_times_are_told_apart_as_a_histogram_does_it():
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    name = "idempotency_check_duration_seconds"
    plain = Histogram(name, "how long", buckets=_BUCKETS, registry=CollectorRegistry())
    near = [bound * part for bound in _BUCKETS for part in (0.999, 1.0, 1.001)]
    for seconds in (0.0, *near, 1e9):
        observer(Event(name="duplicate", seconds=seconds))
        plain.observe(seconds)

    def figures(metrics):
        return {
            (one.name, one.labels.get("le")): pytest.approx(one.value)
            for metric in metrics
            for one in metric.samples
            if metric.name == name and not one.name.endswith("_created")
        }

    assert figures(registry.collect()) == figures(plain.collect())


def test_a_second_observer_of_one_registry_is_refused():
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusObserver(registry)


def test_who_asks_for_one_metric_has_it_up_to_date():
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    observer(Event(name="duplicate", label="charge"))
    text = generate_latest(registry.restricted_registry(["oncekey_duplicates_total"])).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == ['oncekey_duplicates_total{surface="function",task_type="charge"} 1.0']


WORKER = """
import os, signal
from prometheus_client import CollectorRegistry
from oncekey.observe import Event
from oncekey.observe.prometheus import PrometheusObserver

observer = PrometheusObserver(CollectorRegistry())
for _ in range(3):
    observer(Event(name="new", label="charge", seconds=0.25))
    observer(Event(name="completed", label="charge", size=5))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_share_a_folder_have_written_what_they_counted(tmp_path):
    """Nobody collects in them: what another process reads is in their files, even of the dead."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", WORKER],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    labels = {"surface": "function", "task_type": "charge"}
    expected = {
        ("idempotency_check_total", "new"): 6.0,
        ("idempotency_check_duration_seconds_count", None): 6.0,
        ("idempotency_check_duration_seconds_sum", None): 1.5,
    }
    for (name, result), value in expected.items():
        assert registry.get_sample_value(name, {"result": result} if result else {}) == value
    assert registry.get_sample_value("oncekey_runs_total", labels) == 6
    assert registry.get_sample_value("oncekey_stored_bytes_total", labels) == 30


FORKED = """
import os
from prometheus_client import CollectorRegistry
from oncekey.observe import Event
from oncekey.observe.prometheus import PrometheusObserver

registry = CollectorRegistry()
observer = PrometheusObserver(registry)
with observer._lock:  # as a thread may hold it that the child has not got
    child = os.fork()
if not child:
    observer(Event(name="duplicate"))
    found = registry.get_sample_value("idempotency_check_total", {"result": "duplicate"})
    os._exit(0 if found == 1 else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
print("counted")
"""


def test_a_forked_child_counts():
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "counted"), done.stderr


def test_what_others_may_collect_from_files_is_there_at_once(monkeypatch):
    monkeypatch.setattr("oncekey.observe.prometheus.AT_ONCE", True)
    observer = PrometheusObserver(CollectorRegistry())
    observer(Event(name="new", label="task", seconds=0.25))
    (metric,) = observer._counters["new"].collect()
    assert [sample.value for sample in metric.samples if sample.name.endswith("_total")] == [1]
