"""What needs a person is exported as it is now, and an estimate is not exported as a count."""

import sqlite3
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from oncekey import ConfigurationError, Once, StoreError
from oncekey.exporter import NAMES, OUTBOX_NAMES, OutboxGauges, RecordGauges, exposition
from oncekey.inspection.listing import count_records
from oncekey.outbox import Message, Outbox, Relay
from oncekey.outbox.targets import MessageRefusedError
from oncekey.stores.sqlite import browse


@pytest.fixture
def once(tmp_path):
    once = Once(f"sqlite:///{tmp_path / 'records.db'}", observers=(), cache=False)
    yield once.options(on_crash="hold")
    once.close()


def exported(once):
    """Names, statuses and values of the text, as Prometheus reads it."""
    families = text_string_to_metric_families(exposition(once.store))
    return {
        (sample.name, sample.labels.get("status", "")): sample.value
        for family in families
        for sample in family.samples
    }


def hold(once, key):
    with pytest.raises(TimeoutError), once.attempt(key):
        raise TimeoutError


def test_what_is_held_is_exported_until_it_is_resolved(once):
    assert exported(once)["oncekey_held_records", ""] == 0
    assert exported(once)["oncekey_oldest_held_seconds", ""] == 0
    hold(once, "a")
    hold(once, "b")
    once.run("c", lambda: 1)
    found = exported(once)
    assert (found["oncekey_held_records", ""], found["oncekey_store_up", ""]) == (2, 1)
    assert found["oncekey_oldest_held_seconds", ""] > 0
    assert found["oncekey_records", "completed"] == 1
    once.resolve("a", retry=True)
    once.forget("b", force=True)
    assert exported(once)["oncekey_held_records", ""] == 0


def test_an_estimate_is_no_count(once, monkeypatch):
    hold(once, "a")
    for number in range(20):
        once.run(f"{number}", lambda: 1)
    monkeypatch.setattr(browse, "COUNTED", 1)
    monkeypatch.setattr(browse, "_NEWEST", 1)
    found = exported(once)
    assert found["oncekey_held_records", ""] == found["oncekey_records", "held"] == 1
    assert ("oncekey_records", "completed") not in found
    assert found["oncekey_estimated_records", "completed"] > 0
    assert ("oncekey_estimated_records", "running") not in found


def test_a_large_count_is_not_rounded(once, monkeypatch):
    told = count_records(once.store)
    told.by_status["held"] = 1_234_567
    monkeypatch.setattr("oncekey.exporter.count_records", lambda _: told)
    found = exported(once)
    assert found["oncekey_records", "held"] == found["oncekey_held_records", ""] == 1_234_567


def test_of_a_store_that_is_away_nothing_else_is_told(once, monkeypatch):
    def away(*_, **__):
        raise StoreError("away", happened=False)

    monkeypatch.setattr("oncekey.exporter.count_records", away)
    assert exported(once) == {("oncekey_store_up", ""): 0}


def test_a_process_may_export_them_itself(once):
    registry = CollectorRegistry()
    RecordGauges(once, registry)
    hold(once, "a")
    assert registry.get_sample_value("oncekey_held_records") == 1
    assert registry.get_sample_value("oncekey_records", {"status": "held"}) == 1
    with pytest.raises(ValueError, match="Duplicated"):
        RecordGauges(once, registry)
    assert {metric.name for metric in registry.collect()} <= set(NAMES)
    with pytest.raises(ConfigurationError, match="takes a Once"):
        RecordGauges("sqlite:///x", registry)


@pytest.fixture
def shop(tmp_path):
    """The URL of a database, and a function that puts messages into its outbox."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    outbox = Outbox(url)

    def put(*names, **options):
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for name in names:
                outbox.put(connection, Message(id=name), to="orders", **options)
            connection.execute("COMMIT")

    yield url, put
    outbox.close()


def of_outbox(once, url):
    families = text_string_to_metric_families(exposition(once.store, url))
    return {
        (sample.name.removeprefix("oncekey_outbox_"), sample.labels.get("status", "")): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("oncekey_outbox")
    }


def send(url, target, **options):
    relay = Relay(url, target, **options)
    relay.drain()
    relay.close()


def test_what_waits_in_an_outbox_is_exported(once, shop, tmp_path):
    url, put = shop
    assert of_outbox(once, url) == {}
    assert not (tmp_path / "shop.db").exists()
    put("a", "b", "c")
    found = of_outbox(once, url)
    assert found["oldest_seconds", ""] > 0
    assert (found["up", ""], found["messages", "pending"]) == (1, 3)

    def refuse(message):
        if message.id == "b":
            raise MessageRefusedError("no")

    send(url, refuse, max_tries=1)
    assert of_outbox(once, url) == {
        ("up", ""): 1,
        ("oldest_seconds", ""): 0,
        ("messages", "pending"): 0,
        ("messages", "dead"): 1,
        ("messages", "sent"): 2,
    }


def test_a_delayed_message_waits_from_when_its_delay_is_over(once, shop):
    url, put = shop
    put("later", after="1h")
    found = of_outbox(once, url)
    assert (found["messages", "pending"], found["oldest_seconds", ""]) == (1, 0)


def test_of_an_outbox_that_is_away_nothing_else_is_told(once, shop, tmp_path):
    url, put = shop
    put("a")
    (tmp_path / "shop.db").rename(tmp_path / "moved.db")
    (tmp_path / "shop.db").mkdir()  # where there should be a file
    assert of_outbox(once, url) == {("up", ""): 0}


def test_a_process_may_export_its_outbox_itself(shop):
    url, put = shop
    registry = CollectorRegistry()
    OutboxGauges(url, registry)
    assert list(registry.collect()) == []
    put("a")
    assert registry.get_sample_value("oncekey_outbox_messages", {"status": "pending"}) == 1
    assert registry.get_sample_value("oncekey_outbox_up") == 1
    assert {metric.name for metric in registry.collect()} == set(OUTBOX_NAMES)
    with pytest.raises(ConfigurationError, match="an outbox needs"):
        OutboxGauges("redis://localhost", registry)
