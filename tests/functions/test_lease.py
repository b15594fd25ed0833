"""The lease is renewed while the code runs."""

import pytest

from oncekey import LeaseLostError, current
from tests.functions.calls import answer_two, start
from tests.patience import until


def test_the_lease_is_renewed_while_the_code_runs(once, store, gate):
    running = start(lambda: once.options(lease="30ms").run("renewed", gate.enter))
    gate.until_inside()
    store.refuse("renew")  # one failed renewal is not a lost lease
    until(lambda: store.calls["renew"] >= 4)
    gate.go_on.set()
    running.outcome()
    settled = store.calls["renew"]
    assert once.get("renewed").attempt == 1
    assert settled >= 4


def test_the_code_can_see_that_its_lease_is_lost(once, other, gate):
    def work():
        gate.enter()
        until(lambda: current().lost)

    running = start(lambda: once.options(lease="30ms").run("lost", work))
    gate.until_inside()
    other.forget("lost", force=True)
    gate.go_on.set()
    with pytest.raises(LeaseLostError):
        running.outcome()


def test_renewal_ends_with_max_run(once, store, gate):
    running = start(lambda: once.options(lease="30ms", max_run="1ms").run("max", gate.enter))
    gate.until_inside()
    renewed = []
    renew = store.renew
    store.renew = lambda ask: renewed.append(ask.key) or renew(ask)
    next_one = start(lambda: once.options(lease="30ms").run("next", gate.enter))
    until(lambda: "next" in renewed)  # what began before it would have been renewed before it
    assert "max" not in renewed
    gate.go_on.set()
    running.outcome()
    next_one.outcome()


def test_a_new_key_costs_two_round_trips_and_a_duplicate_one(once, store):
    once.run("spy", answer_two)
    assert store.calls == {"claim": 1, "settle": 1}
    once.run("spy", answer_two)
    assert store.calls == {"claim": 2, "settle": 1}
