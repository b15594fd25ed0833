"""Events in structlog, as its own processors see them."""

import logging
from typing import get_args

import pytest
import structlog
from structlog.testing import capture_logs

from oncekey import Once
from oncekey.observe import Event, Name
from oncekey.observe.log import LINES
from oncekey.observe.redaction import hashed
from oncekey.observe.structlog import StructlogObserver
from oncekey.stores import MemoryStore


@pytest.mark.parametrize("name", get_args(Name))
def test_each_event_is_an_entry_in_the_words_of_the_log(name):
    with capture_logs() as entries:
        StructlogObserver()(Event(name=name, key="charge:42", label="charge", attempt=2))
    [entry] = entries
    level, words = LINES[name]
    assert (entry["event"], entry["log_level"]) == (words, logging.getLevelName(level).lower())
    assert (entry["idempotency_key"], entry["task_type"]) == ("charge:42", "charge")
    assert (entry["surface"], entry["attempt"]) == ("function", 2)
    assert "idempotency_scope" not in entry
    assert "detail" not in entry


@pytest.mark.row("J10")
def test_a_duplicate_is_an_entry_with_its_key_and_task():
    with capture_logs() as entries:
        once = Once(MemoryStore(), observers=[StructlogObserver()])
        charge = once("charge:{x}", scope="billing", label="charge")(abs)
        assert [charge(-7), charge(-7)] == [7, 7]
    claimed, completed, skipped = entries
    assert (claimed["event"], completed["event"]) == ("task claimed", "task completed")
    assert completed["size"] > 0
    assert (skipped["event"], skipped["log_level"]) == ("duplicate task skipped", "debug")
    assert (skipped["idempotency_key"], skipped["task_type"]) == ("charge:-7", "charge")
    assert skipped["idempotency_scope"] == "billing"
    assert skipped["seconds"] > 0


def test_what_a_client_chose_is_hashed():
    with capture_logs() as entries:
        event = Event(name="refused", key="secret", scope="ann", surface="http", detail="secret!")
        StructlogObserver()(event)
        StructlogObserver(redact=False)(event)
    hidden, shown = entries
    assert "secret" not in str(hidden)
    assert "ann" not in str(hidden)
    assert (hidden["idempotency_key"], hidden["detail"]) == (
        hashed("ann/secret"),
        f"{hashed('ann/secret')}!",
    )
    assert shown["idempotency_key"] == "secret"


def test_what_was_purged_is_counted():
    with capture_logs() as entries:
        StructlogObserver()(Event(name="purged", count=12))
    assert entries == [{"event": "expired records purged", "log_level": "debug", "count": 12}]


def test_another_logger_can_be_given():
    with capture_logs() as entries:
        StructlogObserver(structlog.get_logger().bind(service="shop"))(Event(name="new", key="k"))
    assert entries[0]["service"] == "shop"
