"""The two colours of a surface are the same code, as those of the engine are."""

import pytest

from tests.twins import test_twins as twins

# The names that may differ, per pair of files.
PAIRS = {
    "http/django_exchange": {
        "AsyncExchange": "Exchange",
        "AsyncAttempt": "Attempt",
        "attempt_async": "attempt",
        "ask_async": "ask",
        "enter_async": "enter",
        "hold_async": "hold",
        "get_async": "get",
        "engine_async": "engine",
    },
}
PACKAGES = ("http", "jobs")


@pytest.mark.parametrize("name", PAIRS)
def test_the_twins_are_equal_but_for_their_colour(name, monkeypatch):
    monkeypatch.setattr(twins, "PAIRS", PAIRS[name])
    blocking = twins.bleached(twins.SOURCE / f"{name}.py")
    assert twins.bleached(twins.SOURCE / f"{name}_async.py") == blocking


@pytest.mark.parametrize("name", PAIRS)
def test_at_most_a_dozen_names_differ(name):
    assert len(PAIRS[name]) <= 12


def test_every_file_with_a_twin_is_compared():
    found = {
        path.relative_to(twins.SOURCE).as_posix().removesuffix("_async.py")
        for package in PACKAGES
        for path in (twins.SOURCE / package).glob("*_async.py")
    }
    assert found == set(PAIRS)
