"""How differences to a bare run are found, explained and reported."""

from collections import Counter

import pytest

from tests.outside.__main__ import REASONS
from tests.outside.differences import (
    Difference,
    Reason,
    compare,
    failing,
    matches,
    read,
    reason_for,
    stale,
)
from tests.outside.guests import BARE, FLASK, GUESTS, KEYED, WRAPPED
from tests.outside.page import page
from tests.outside.report import Report, as_json, counts
from tests.outside.run import Outcomes

REASON = Reason("flask", (KEYED,), ("test_a[*]",), "Because.")


def difference(test: str, *, guest: str = "flask", mode: str = KEYED) -> Difference:
    return Difference(guest, mode, test, "passed", "failed")


def reported(*found: Difference, reasons: tuple[Reason, ...] = (REASON,)) -> Report:
    bare = {"test_a[1]": "passed", "test_b": "passed", "test_c": "failed"}
    seen = {mode: Outcomes(bare, Counter(new=3, wrapped=2)) for mode in FLASK.modes}
    report = Report(list(reasons), {"flask": seen}, list(found))
    report.guests, report.versions = [FLASK], {"flask": "1.0"}
    return report


def test_equal_outcomes_are_no_difference():
    same = {"test_a": "passed", "test_b": "failed", "test_c": "skipped"}
    assert compare("flask", KEYED, same, dict(same)) == []


def test_each_test_that_ends_otherwise_is_a_difference():
    bare = {"test_a": "passed", "test_b": "failed", "test_c": "passed"}
    seen = {"test_a": "failed", "test_b": "passed", "test_c": "passed"}
    assert compare("flask", KEYED, bare, seen) == [
        Difference("flask", KEYED, "test_a", "passed", "failed"),
        Difference("flask", KEYED, "test_b", "failed", "passed"),
    ]


def test_a_test_that_only_one_run_has_is_a_difference():
    found = compare("flask", KEYED, {"test_a": "passed"}, {"test_b": "passed"})
    assert [(one.test, one.bare, one.seen) for one in found] == [
        ("test_a", "passed", "missing"),
        ("test_b", "missing", "passed"),
    ]


@pytest.mark.parametrize(
    ("pattern", "test", "fits"),
    [
        ("test_a", "test_a", True),
        ("test_a", "test_ab", False),
        ("test_a*", "test_ab", True),
        ("*[trio*", "test_a[trio-1]", True),
        ("*[trio*", "test_a[asyncio]", False),
        ("test_a[1]", "test_a1", False),
        ("test.a", "test_a", False),
    ],
)
def test_only_the_star_is_special_in_a_pattern(pattern, test, fits):
    assert matches(pattern, test) == fits


def test_a_reason_explains_its_own_guest_mode_and_tests():
    assert reason_for(difference("test_a[1]"), [REASON]) is REASON
    assert reason_for(difference("test_b"), [REASON]) is None
    assert reason_for(difference("test_a[1]", mode=WRAPPED), [REASON]) is None
    assert reason_for(difference("test_a[1]", guest="django"), [REASON]) is None


def test_a_pattern_that_explains_nothing_is_stale():
    reason = Reason("flask", (WRAPPED, KEYED), ("test_a", "test_b"), "Because.")
    found = [difference("test_a"), difference("test_b"), difference("test_b", mode=WRAPPED)]
    [old] = stale([reason], ["flask"], found)
    assert (old.mode, old.pattern) == (WRAPPED, "test_a")


def test_a_reason_of_a_guest_that_did_not_run_is_not_stale():
    assert stale([REASON], ["django"], []) == []


def test_failing_tests_are_those_that_failed_or_broke():
    outcomes = {"d": "xpassed", "c": "error", "b": "failed", "a": "passed", "e": "skipped"}
    assert failing(outcomes) == ["b", "c"]


def test_a_report_is_clean_when_all_is_explained_and_every_reason_is_needed():
    assert reported(difference("test_a[1]")).clean
    assert not reported(difference("test_a[1]"), difference("test_b")).clean
    assert not reported().clean


def test_the_page_tells_counts_differences_and_what_fails_bare():
    text = page(reported(difference("test_a[1]"), difference("test_b")))
    assert (
        "| flask | 2 passed, 1 failed | 2 passed, 1 failed | 2 passed, 1 failed | 2 | 3 |" in text
    )
    assert "Because.\n\n- with keys: `test_a[1]`, passed → failed" in text
    assert "### Unexplained\n\n- flask, with keys: `test_b`" in text
    assert "- flask: `test_c`" in text


def test_the_report_for_programs_has_every_difference_with_its_reason():
    told = as_json(reported(difference("test_a[1]"), difference("test_b")))
    assert [one["reason"] for one in told["differences"]] == ["Because.", None]
    assert told["clean"] is False
    assert told["guests"]["flask"]["fails_bare"] == ["test_c"]


def test_counts_are_words():
    outcomes = Outcomes({"a": "passed", "b": "passed", "c": "xfailed"}, Counter())
    assert counts(outcomes) == "2 passed, 1 xfailed"


def test_reasons_are_about_guests_and_modes_that_exist():
    modes = {guest.name: guest.modes for guest in GUESTS}
    for reason in read(REASONS):
        assert set(reason.modes) <= set(modes[reason.guest]) - {BARE}
        assert reason.tests
        assert reason.why.endswith(".")
