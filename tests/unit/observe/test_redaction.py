"""What a log or a trace may say about a key."""

import logging

import pytest

from oncekey import ConfigurationError
from oncekey.cli.keys import name_of
from oncekey.core.key import stored_key
from oncekey.observe import Event
from oncekey.observe.log import LogObserver
from oncekey.observe.redaction import Redaction, hashed

KEY = "ann@example.org"
SCOPE = "ann:POST:/orders"
HASHED = hashed(stored_key(SCOPE, KEY))


def event(surface, **more):
    return Event(name="refused", key=KEY, scope=SCOPE, surface=surface, **more)


def test_a_hash_is_short_and_the_same_everywhere():
    assert hashed(KEY) == "sha256:438c4c7afe600cdf"
    assert hashed("") != hashed("0")


@pytest.mark.parametrize("surface", ["function", "job", "enqueue", "message", "mark"])
def test_keys_that_the_program_made_are_told(surface):
    told = Redaction(None).told(event(surface))
    assert (told.key, told.scope) == (KEY, SCOPE)


def test_keys_that_a_client_chose_are_not():
    told = Redaction(None).told(event("http", detail=f"no answer about {KEY!r}"))
    assert told == (HASHED, hashed(SCOPE), f"no answer about '{HASHED}'", HASHED)


def test_a_hash_is_the_one_that_the_command_line_prints(recorded):
    there = recorded(scope=SCOPE, key=KEY)
    assert name_of(there, redact=True) == Redaction(True).told(event("http")).key


@pytest.mark.parametrize(
    ("redact", "surface", "told"),
    [
        (True, "function", HASHED),
        (True, "http", HASHED),
        (False, "http", KEY),
        (len, "function", len(KEY)),
        (len, "http", len(KEY)),
    ],
)
def test_whoever_says_so_gets_more_or_less(redact, surface, told):
    if redact is len:
        assert Redaction(lambda text: str(len(text))).told(event(surface)).key == str(told)
    else:
        assert Redaction(redact).told(event(surface)).key == told


def test_without_a_scope_or_a_key_there_is_nothing_to_hide():
    told = Redaction(True).told(Event(name="new", key=KEY))
    assert (told.key, told.scope) == (hashed(KEY), None)
    assert Redaction(True).told(Event(name="purged", count=3)) == ("", None, "", "")


@pytest.mark.parametrize("wrong", ["yes", 1, 0])
def test_what_is_no_choice_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="redact must be True, False, None or a function"):
        LogObserver(redact=wrong)


def test_no_field_of_a_log_entry_holds_what_a_client_chose(caplog):
    caplog.set_level(logging.DEBUG, "oncekey")
    LogObserver()(event("http", label="POST /orders", detail=f"about {KEY}"))
    [entry] = caplog.records
    assert "example.org" not in str(vars(entry))
    assert entry.idempotency_key == HASHED
    assert entry.idempotency_scope == hashed(SCOPE)
    assert entry.task_type == "POST /orders"
