"""The fixture, as a user's own tests have it: red for the naive handler, green for the other."""

from pathlib import Path

import pytest

import oncekey.testing
from oncekey.testing import ChaosError, pytest_plugin

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
SHOP = """
from oncekey import Once, current

once = Once("memory://")


class Gateway:
    def charge(self, amount, idempotency_key=None):
        raise AssertionError("no test may charge anybody")


gateway = Gateway()


def pay_naively(order, amount):
    return gateway.charge(amount)


@once("pay:{order}")
def pay(order, amount):
    return gateway.charge(amount, idempotency_key=current().downstream_key("charge"))
"""
TESTS = """
import pytest
import shop


@pytest.fixture
def chaos(once_chaos, monkeypatch):
    monkeypatch.setattr(shop.gateway, "charge", once_chaos.effect("charge"))
    once_chaos.use(shop.once)
    return once_chaos


def test_naive(chaos):
    chaos.run(lambda: shop.pay_naively("A-17", 40))


def test_protected(chaos):
    chaos.run(lambda: shop.pay("A-17", 40))
"""


def test_the_naive_handler_is_red_and_the_protected_one_green(pytester):
    pytester.makepyfile(shop=SHOP, test_shop=TESTS)
    # As the entry point would load it, which this project's own settings may block.
    plugin = ("-p", "no:oncekey", "-p", "oncekey.testing.pytest_plugin")
    result = pytester.runpytest_inprocess(*plugin, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*ChaosError: 7 of 8 schedules went wrong",
            "*schedule * charge",
            "*the same call again * 2  charge happened 2 times*",
            "*protect the function*",
            "FAILED test_shop.py::test_naive*",
        ]
    )


def test_the_page_shows_the_tables_as_they_are(once_chaos):
    charge = once_chaos.effect("charge")

    @once_chaos.once("pay:{order}")
    def pay(order):
        return charge()

    for call in (charge, lambda: pay("A-17")):
        with pytest.raises(ChaosError) as found:
            once_chaos.run(call)
        for line in str(found.value).splitlines():
            assert line in PAGE.read_text()


def test_the_fixture_is_one_and_the_same_wherever_it_is_imported_from():
    assert pytest_plugin.once_chaos is oncekey.testing.once_chaos
