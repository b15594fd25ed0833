"""A protected call runs once, and whoever asks again gets the first answer."""

from decimal import Decimal

import pytest

from oncekey import KeyReusedError, ResultNotKeptError, UnreadableError, current
from tests.functions.calls import Order, Receipt


@pytest.mark.row("P2", "J4")
def test_the_second_call_gets_the_first_result_as_what_it_was(once, runs):
    @once("charge:{order.id}", scope="billing")
    def charge(order: Order) -> Receipt:
        runs.append(order.id)
        return Receipt("r-1", order.total)

    first = charge(Order(7, Decimal("9.90")))
    second = charge(Order(7, Decimal("9.90")))
    assert first == second == Receipt("r-1", Decimal("9.90"))
    assert type(second) is Receipt
    assert runs == [7]


def test_the_outcome_tells_a_duplicate(once):
    @once("job:{n}")
    def job(n: int) -> int:
        return n * 2

    first, second = job.outcome(4), job.outcome(4)
    assert (first.value, first.duplicate, first.key, first.attempt) == (8, False, "job:4", 1)
    assert (second.value, second.duplicate, second.key, second.attempt) == (8, True, "job:4", 1)


@pytest.mark.parametrize("value", [None, 0, "", {}, [], False, 0.0, b""])
def test_a_falsy_result_is_a_result(once, runs, value):
    def work():
        runs.append(1)
        return value

    for _ in range(2):
        result = once.run("falsy", work)
        assert result == value
        assert type(result) is type(value)
    assert runs == [1]


@pytest.mark.row("P2")
def test_every_duplicate_gets_a_copy_of_its_own(once):
    def work():
        return {"list": [1]}

    once.run("copy", work)
    mine = once.run("copy", work)
    mine["list"].append(2)
    assert once.run("copy", work) == {"list": [1]}


@pytest.mark.row("P3", "P7")
def test_the_same_key_with_other_arguments_is_refused(once, runs, events):
    @once("charge:{order}")
    def charge(order: int, amount: int, currency: str = "USD") -> int:
        runs.append(amount)
        return amount

    charge(1, 100)
    assert charge(1, amount=100, currency="USD") == 100  # the same call, written otherwise
    with pytest.raises(KeyReusedError) as caught:
        charge(1, 101)
    assert caught.value.key == "charge:1"
    assert runs == [100]
    assert events[-1].name == "reused"


def test_a_result_that_cannot_come_back_is_done_and_never_run_again(once, runs, events):
    def work():
        runs.append(1)
        return (1, 2)

    assert once.run("tuple", work) == (1, 2)
    with pytest.raises(ResultNotKeptError):
        once.run("tuple", work)
    assert runs == [1]
    (told,) = [event for event in events if event.name == "not_kept"]
    assert "annotate" in told.detail


def test_a_result_that_is_too_large_is_done_and_never_run_again(once, runs, events):
    def work() -> str:
        runs.append(1)
        return "x" * 100

    small = once.options(max_result=50)
    assert small.run("large", work) == "x" * 100
    with pytest.raises(ResultNotKeptError):
        small.run("large", work)
    assert runs == [1]
    assert [event.name for event in events].count("not_kept") == 1


def test_what_is_stored_and_does_not_fit_is_never_run_again(once, runs):
    def text() -> str:
        runs.append(1)
        return "seven"

    def number() -> int:
        runs.append(2)
        return 7

    once.run("typed", text)
    with pytest.raises(UnreadableError, match="does not run again"):
        once.run("typed", number)
    assert runs == [1]


@pytest.mark.row("P5", "J2")
@pytest.mark.parametrize("ttl", ["100ms", "24h"])
def test_after_the_ttl_the_key_is_free_again(once, clock, runs, ttl):
    def work():
        runs.append(1)

    short = once.options(ttl=ttl)
    short.run("ttl", work)
    short.run("ttl", work)
    assert runs == [1]
    clock.advance(ttl)
    short.run("ttl", work)
    assert runs == [1, 1]


@pytest.mark.row("J5")
def test_an_empty_key_runs_unprotected_each_time(once, store, runs):
    @once(lambda payload: payload["id"])
    def job(payload: dict[str, str]) -> str:
        runs.append(current().downstream_key("x"))
        return "done"

    assert job({"id": ""}) == job({"id": ""}) == "done"
    assert len(runs) == 2
    assert runs[0] != runs[1]  # two operations, not one
    assert not store.calls
    assert job.key({"id": ""}) == ""
