"""The life of a record in words."""

from typing import Any

import pytest

from oncekey.core.audit import AuditEntry
from oncekey.core.record import Record
from oncekey.dashboard import views
from oncekey.dashboard.text import as_json, beside_or_now, lines, of_bytes, shown
from oncekey.inspection.text import brief, length, meaning, printable

SECOND = 1_000_000
BEGIN = 1_800_000_000 * SECOND


def record(**facts: Any) -> Record:
    given = {
        "scope": None,
        "key": "k-1",
        "status": "running",
        "fingerprint": None,
        "token": 7,
        "nonce": "n",
        "attempt": 1,
        "lease_end": BEGIN + 300 * SECOND,
        "created": BEGIN,
        "started": BEGIN,
        "updated": BEGIN,
        "expires": 0,
    }
    return Record(**(given | facts))


def told(one: Record, present: int = BEGIN) -> list[str]:
    return [f"{moment.title} {moment.more}".strip() for moment in views.life(one, present)]


def test_what_people_did_stands_where_it_happened():
    deed = AuditEntry(action="retry", by="ann", reason="nothing arrived", at=BEGIN + 60 * SECOND)
    one = record(
        status="released",
        attempt=0,
        updated=deed.at,
        finished=deed.at,
        expires=BEGIN + 3600 * SECOND,
    )
    entries = [entry.title for entry in views.life(one, deed.at, [deed])]
    assert entries == [
        "Claimed",
        "Released: the key is free",
        "Freed to run again by ann: nothing arrived",
        "Forgotten by itself",
    ]


def test_a_first_attempt():
    assert told(record()) == ["Claimed, attempt 1 started", "Lease ends, unless it is renewed"]


def test_an_attempt_that_renews():
    assert told(record(updated=BEGIN + 100 * SECOND))[1] == "Renewed its lease or noted something"


def test_a_later_attempt_that_completed():
    one = record(
        attempt=3,
        status="completed",
        started=BEGIN + 60 * SECOND,
        finished=BEGIN + 62 * SECOND,
        expires=BEGIN + 3600 * SECOND,
    )
    assert told(one) == [
        "Claimed for the first time",
        "Attempt 3 started 2 before it",
        "Completed after 2 s",
        "Forgotten by itself",
    ]


def test_an_uncertain_end_and_what_came_of_it():
    facts: dict[str, Any] = {"uncertain": True, "finished": BEGIN + 10 * SECOND}
    unclear = "Ended without a definite outcome after 10 s"
    at_once = record(status="held", updated=BEGIN + 10 * SECOND, **facts)
    assert told(at_once) == ["Claimed, attempt 1 started", unclear]
    later = record(status="held", updated=BEGIN + 60 * SECOND, **facts)
    assert told(later)[1:] == [unclear, "Held until somebody says how it ended"]
    retried = record(status="released", updated=BEGIN + 60 * SECOND, **facts)
    assert told(retried)[1:] == [unclear, "Released: the key is free"]
    again = record(attempt=2, started=BEGIN + 20 * SECOND, **facts)
    assert told(again)[1:3] == ["Ended without a definite outcome", "Attempt 2 started 1 before it"]


def test_a_status_of_a_newer_release():
    one = record(status="paused", version=2, finished=BEGIN + SECOND)
    assert views.tone_of(one, 0) == "unknown"
    assert "A newer release" in meaning(one, BEGIN)
    assert told(one)[-1] == "Ended after 1 s"


def test_what_cannot_be_read_is_said():
    one = record(noted=b"\xc1", result=b"\xc1", status="completed")
    assert "cannot be read" in views.noted(one)[2]
    assert "cannot be read" in views.result_of(one)
    assert views.result_size(one) == "1 byte"


@pytest.mark.parametrize(
    ("at", "words"),
    [(0, "just now"), (-400, "just now"), (90 * SECOND, "in 1 min"), (-86400 * SECOND, "1 d ago")],
)
def test_where_a_moment_lies(at, words):
    assert beside_or_now(BEGIN + at, BEGIN) == words


@pytest.mark.parametrize(
    ("span", "words", "finer"),
    [
        (0, "0 s", "0 ms"),
        (1500, "0 s", "1 ms"),
        (1500 * 1000, "1 s", "1.5 s"),
        (7200 * SECOND, "2 h", "2 h"),
    ],
)
def test_how_long_something_is(span, words, finer):
    assert length(span) == words
    assert brief(span) == finer


def test_what_cannot_be_seen_is_written_as_an_escape():
    assert shown("a\x1b<b>") == 'a<span class="escape">\\x1b</span>&lt;b&gt;'
    assert shown("\\x1b") == "\\x1b"  # the same letters, typed: no escape
    assert printable("\u202ex\n") == "\\u202ex\\n"
    assert lines("a\nb\t") == 'a\nb<span class="escape">\\t</span>'


def test_values_and_sizes():
    assert as_json({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    assert of_bytes(2047) == "2\N{NARROW NO-BREAK SPACE}047 bytes"
    assert of_bytes(10240) == "10.0 KiB"
