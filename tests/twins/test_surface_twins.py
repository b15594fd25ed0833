"""The two colours of a surface are the same code, as those of the engine are."""

import pytest

from tests.twins import test_twins as twins

# The names that may differ, per pair of files.
PAIRS = {
    "http/exchange": {
        "AsyncExchange": "Exchange",
        "AsyncRun": "Run",
        "get_async": "get",
        "engine_async": "engine",
    },
}
PACKAGES = ("http", "jobs")


@pytest.mark.parametrize("name", PAIRS)
def test_the_twins_are_equal_but_for_their_colour(name, monkeypatch):
    monkeypatch.setattr(twins, "PAIRS", PAIRS[name])
    blocking = twins.bleached(twins.SOURCE / f"{name}.py")
    coroutine = twins.bleached(twins.SOURCE / f"{name}_async.py")
    only_async = "        run.loop = running_loop()"
    assert [line for line in coroutine if line != only_async] == blocking


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
