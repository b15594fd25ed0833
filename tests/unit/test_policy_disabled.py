"""The off switch."""

import pytest

from oncekey import Once
from oncekey.policy import disabled, off_in_environment, switched_off


def test_protection_is_on_outside_and_off_inside():
    assert not switched_off()
    with disabled():
        assert switched_off()
        with disabled():
            assert switched_off()
        assert switched_off()
    assert not switched_off()


def test_an_error_inside_switches_it_on_again():
    with pytest.raises(KeyError), disabled():
        raise KeyError
    assert not switched_off()


@pytest.mark.parametrize("value", ["1", "true", "TRUE", "yes", "on"])
def test_the_environment_can_switch_it_off(monkeypatch, value):
    monkeypatch.setenv("ONCEKEY_DISABLED", value)
    assert off_in_environment()


@pytest.mark.parametrize("value", ["", "0", "false", "no", None])
def test_any_other_word_leaves_it_on(monkeypatch, value):
    monkeypatch.delenv("ONCEKEY_DISABLED", raising=False)
    if value is not None:
        monkeypatch.setenv("ONCEKEY_DISABLED", value)
    assert not off_in_environment()


async def test_an_attempt_that_is_switched_off_runs_and_nobody_hears_of_it():
    once = Once("memory://", observers=())
    with disabled():
        for _ in range(2):
            async with once.attempt("order-1") as attempt:
                assert not attempt.duplicate
                assert not attempt.protected
                await attempt.complete("done")
    assert once.get("order-1") is None
