"""Listing records, in both colours."""

import pytest

from oncekey import ConfigurationError
from tests.functions.calls import answer_two, fail_definitely


def make(once):
    for n in range(250):
        once.options(scope="b").check(f"{n:03}")
    once.run("plain", answer_two)
    with pytest.raises(ValueError):
        once.options(scope="a").run("failed", fail_definitely)


def test_scan_gives_every_record_in_order(once):
    make(once)
    found = [(record.scope, record.key) for record in once.scan()]
    assert len(found) == 252
    assert found[:2] == [(None, "plain"), ("a", "failed")]
    assert [key for _, key in found[2:]] == [f"{n:03}" for n in range(250)]


async def test_scan_async_gives_the_same(once):
    make(once)
    found = [(record.scope, record.key) async for record in once.scan_async()]
    assert found == [(record.scope, record.key) for record in once.scan()]


async def test_scan_filters(once):
    make(once)
    assert [record.key for record in once.scan(scope="a")] == ["failed"]
    assert [record.key for record in once.scan(scope=None)] == ["plain"]
    assert [record.key for record in once.scan(status="released")] == ["failed"]
    assert [record.key async for record in once.scan_async(scope="a")] == ["failed"]
    for wrong in ({"status": "gone"}, {"scope": ""}):
        with pytest.raises(ConfigurationError):
            once.scan(**wrong)
        with pytest.raises(ConfigurationError):
            once.scan_async(**wrong)
