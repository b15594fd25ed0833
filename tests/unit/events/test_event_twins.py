"""The two colours of a bus are the same code, as `tests/twins` compares it."""

from pathlib import Path

import pytest

from tests.twins import test_twins as twins

EVENTS = Path(__file__).parents[3] / "src" / "oncekey" / "events"
PAIRS = {
    "AsyncDoor": "Door",
    "AsyncRedisPlace": "RedisPlace",
    "AsyncClients": "Clients",
    "AsyncPlace": "Place",
    "aclose": "close",
}
TWINS = ["door", "redis_place"]


@pytest.fixture
def bleached(monkeypatch):
    monkeypatch.setattr(twins, "PAIRS", PAIRS)
    return twins.bleached


@pytest.mark.parametrize("name", TWINS)
def test_the_twins_are_equal_but_for_their_colour(name, bleached):
    assert bleached(EVENTS / f"{name}.py") == bleached(EVENTS / f"{name}_async.py")


def test_every_file_with_a_twin_is_compared():
    found = {path.name.removesuffix("_async.py") for path in EVENTS.glob("*_async.py")}
    assert found == set(TWINS)
