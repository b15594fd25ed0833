"""A store that fails: before it does what it is asked, or after, with its reply lost."""

import pytest

from oncekey import (
    ConfigurationError,
    Done,
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    Once,
    StoreError,
    UnreadableError,
    current,
)
from oncekey.engine import engine as leaving_module
from oncekey.engine import single_flight
from oncekey.engine.chores import Renewal
from oncekey.engine.keeper import keeper
from oncekey.engine.run_base import BaseRun
from tests.functions.calls import (
    CUT_OFF,
    answer_two,
    fail_definitely,
    names,
    replace_record,
    start,
    until_status,
    until_waiting,
)
from tests.patience import until


def test_while_the_store_is_down_a_closed_call_is_refused(once, store, runs, events):
    store.refuse("claim")
    with pytest.raises(StoreError):
        once.run("down", runs.append, 1)
    assert runs == []
    assert events[-1].name == "refused"
    assert once.run("down", runs.append, 1) is None


def test_while_the_store_is_down_an_open_call_runs_all_the_same(once, store, runs, events):
    def work():
        runs.append(1)
        current().note(kept="nowhere")
        assert not current().protected
        assert current().token > 0
        return "done"

    store.refuse("claim", 10_000)
    opened = once.options(fail_mode="open")
    assert opened.run("down", work) == "done"
    assert opened.run("down", work) == "done"
    assert runs == [1, 1]
    assert [event.name for event in events] == ["unprotected", "unprotected"]
    with pytest.raises(ValueError):
        opened.run("down2", fail_definitely)
    store.heal()
    until_status(once, "down", "completed")
    until_status(once, "down2", "released")


def test_unprotected_callers_here_share_one_run(once, store, gate, runs, events):
    def work():
        runs.append(1)
        gate.enter()
        return "done"

    store.refuse("claim", 10_000)
    opened = once.options(fail_mode="open")
    first = start(lambda: opened.run("down", work))
    gate.until_inside()
    rest = [start(lambda: opened.run("down", work)) for _ in range(5)]
    until_waiting(events, 5)
    gate.go_on.set()
    assert [caller.outcome() for caller in (first, *rest)] == ["done"] * 6
    assert runs == [1]


def test_a_claim_whose_reply_is_lost_is_asked_for_again(once, store, runs):
    store.lose_reply("claim", 2)
    assert once.run("lost", runs.append, 1) is None
    assert runs == [1]
    assert once.get("lost").attempt == 1


def test_no_later_try_tells_what_became_of_the_first(once, store, runs):
    store.lose_reply("claim", 1)
    store.cut_off("claim", 3)
    with pytest.raises(StoreError, match="one try may have reached the store") as caught:
        once.run("doubt", runs.append, 1)
    assert caught.value.happened is None
    until_status(once, "doubt", "released")
    assert runs == []


def test_a_store_that_stays_silent_is_asked_once_more_and_not_again(once, store, runs, monkeypatch):
    """It takes all the time there is to find out that it says nothing."""
    monkeypatch.setattr(leaving_module, "ASK_PATIENCE", 0.0)
    store.lose_reply("claim", 4)
    with pytest.raises(StoreError):
        once.run("silent", runs.append, 1)
    assert store.calls["claim"] == 2
    assert runs == []


def test_a_claim_that_is_never_heard_of_is_given_back(once, store, runs):
    store.lose_reply("claim", 4)
    with pytest.raises(StoreError):
        once.run("unheard", runs.append, 1)
    until_status(once, "unheard", "released")
    assert once.run("unheard", runs.append, 1) is None
    assert once.get("unheard").attempt == 1  # nobody had run it


def test_a_claim_whose_repetition_is_refused_is_given_back(once, store, runs):
    """Its reply was lost; then the password was wrong, or a right was missing."""

    def refused(_):
        msg = "no permission"
        raise ConfigurationError(msg)

    store.lose_reply("claim")
    store.instead("claim", refused)
    with pytest.raises(ConfigurationError, match="no permission"):
        once.run("k", runs.append, 1)
    assert not runs
    until_status(once, "k", "released")


def test_a_claim_that_is_cut_off_is_given_back(once, store, runs):
    def cut_off(do):
        do()
        raise CUT_OFF

    store.instead("claim", cut_off)
    with pytest.raises(CUT_OFF):
        once.run("cut", runs.append, 1)
    until_status(once, "cut", "released")
    assert once.run("cut", runs.append, 1) is None
    assert runs == [1]


def test_an_unreadable_record_is_no_store_trouble(once, store, runs):
    def unreadable(do):
        msg = "newer"
        raise UnreadableError(msg, key="k")

    store.instead("claim", unreadable)
    with pytest.raises(UnreadableError):
        once.options(fail_mode="open").run("k", runs.append, 1)
    assert runs == []


@pytest.mark.parametrize("verb", ["settle", "note"])
def test_a_write_whose_reply_is_lost_is_repeated(once, store, verb):
    def work():
        current().note(a=1)
        return "done"

    store.lose_reply(verb, 2)
    assert once.run("write", work) == "done"
    record = once.get("write")
    assert (record.status, record.notes, record.attempt) == ("completed", {"a": 1}, 1)


def test_what_could_not_be_settled_is_settled_later(once, store, monkeypatch, events):
    monkeypatch.setattr(leaving_module, "SETTLE_PATIENCE", 0.0)
    store.refuse("settle", 3)
    with pytest.raises(NotRecordedError) as caught:
        once.run("later", answer_two)
    assert caught.value.result == 2
    assert "not_recorded" in [event.name for event in events]
    until_status(once, "later", "completed")
    assert once.run("later", answer_two) == 2


def test_those_who_wait_here_are_told_only_what_is_recorded(once, store, gate, monkeypatch, events):
    monkeypatch.setattr(leaving_module, "SETTLE_PATIENCE", 0.0)

    def work():
        gate.enter()
        return 2

    running = start(lambda: once.run("later", work))
    gate.until_inside()
    waiting = start(lambda: once.run("later", work))
    until_waiting(events, 1)
    store.refuse("settle")
    gate.go_on.set()
    with pytest.raises(NotRecordedError):
        running.outcome()
    assert waiting.outcome() == 2
    assert store.calls["claim"] > 1  # it has asked the store
    assert once.get("later").attempt == 1


@pytest.fixture
def _believes_flights(monkeypatch):
    """What is known of a flight never gets too old, so that nothing else can set a key free."""
    monkeypatch.setattr(single_flight, "FRESH_FOR", 3600.0)


@pytest.mark.usefixtures("_believes_flights")
def test_who_is_cut_off_while_it_gives_way_keeps_nobody_waiting(once, other, store):
    """The settle of a kept failure is refused, and the look at the winner is cut off."""

    def cut_off(_):
        raise CUT_OFF

    def work():
        replace_record(store.store, "gone")
        store.instead("get", cut_off)
        raise ValueError

    keeping = once.options(on_error="keep", fingerprint=None, wait=0, retry_after="1h")
    with pytest.raises(CUT_OFF):
        keeping.run("gone", work)
    other.forget("gone", force=True)
    assert keeping.run("gone", answer_two) == 2  # the store was asked, and not who is gone


def test_a_step_that_was_done_and_could_not_be_noted_leaves_a_doubt(once, store):
    def work():
        current().step("charge", answer_two)

    store.refuse("note")
    with pytest.raises(StoreError):
        once.run("charge", work)
    record = once.get("charge")
    assert (record.status, record.uncertain) == ("released", True)


def almost_lost(clock):
    """A claim whose reply is lost, and whose lease of a day has passed but for a second."""

    def late(do):
        do()
        clock.advance(86_399)
        msg = "the reply was lost"
        raise StoreError(msg, happened=None)

    return late


def test_a_grant_that_was_long_on_its_way_is_renewed_at_once(once, store, clock):
    def work():
        until(lambda: store.calls["renew"])  # the next renewal is due in eight hours

    store.instead("claim", almost_lost(clock))
    once.options(lease="1d").run("late", work)
    assert once.get("late").attempt == 1


def test_a_run_that_began_unprotected_is_renewed_at_once_when_its_claim_was_granted_long_ago(
    once, store, clock
):
    def work():
        until(lambda: store.calls["renew"])

    store.instead("claim", almost_lost(clock))
    store.refuse("claim", 3)  # no answer to those who ask again at once
    once.options(lease="1d", fail_mode="open").run("late", work)
    until_status(once, "late", "completed")
    assert once.get("late").attempt == 1


def test_what_could_not_be_settled_is_returned_where_calls_fail_open(once, store, monkeypatch):
    monkeypatch.setattr(leaving_module, "SETTLE_PATIENCE", 0.0)
    store.refuse("settle")
    assert once.options(fail_mode="open").run("later", answer_two) == 2
    until_status(once, "later", "completed")


def test_a_kept_failure_that_could_not_be_settled_is_raised_all_the_same(once, store, monkeypatch):
    monkeypatch.setattr(leaving_module, "SETTLE_PATIENCE", 0.0)
    store.refuse("settle")
    with pytest.raises(ValueError):
        once.options(on_error="keep").run("later", fail_definitely)
    until_status(once, "later", "failed")


def test_a_settle_that_is_cut_off_is_made_later(once, store):
    def cut_off(do):
        raise CUT_OFF

    store.instead("settle", cut_off)
    with pytest.raises(CUT_OFF):
        once.run("cut", answer_two)
    until_status(once, "cut", "completed")
    assert once.run("cut", answer_two) == 2


@pytest.mark.parametrize("how", ["refused", "cut off"])
def test_a_release_that_could_not_be_made_is_made_later(once, store, how):
    def cut_off(do):
        raise CUT_OFF

    if how == "refused":
        store.refuse("release")
    else:
        store.instead("release", cut_off)
    with pytest.raises(ValueError if how == "refused" else CUT_OFF):
        once.run("free", fail_definitely)
    until_status(once, "free", "released")


def test_a_refused_settle_that_cannot_even_be_looked_up_is_a_lost_lease(
    once, other, clock, gate, store
):
    running = start(lambda: once.options(heartbeat=False).run("slow", gate.enter))
    gate.until_inside()
    clock.advance("5min")
    assert other.options(fingerprint=None).run("slow", answer_two) == 2
    store.refuse("get")
    gate.go_on.set()
    with pytest.raises(LeaseLostError):
        running.outcome()


def test_who_is_cut_off_while_it_looks_for_the_other_answer_keeps_no_place(once, store):
    def cut_off(_do):
        raise CUT_OFF

    def lose_the_record_and_fail():
        replace_record(store.store, "k")
        raise ValueError

    store.instead("get", cut_off)
    with pytest.raises(CUT_OFF):
        once.options(heartbeat=False, keep=ValueError).run("k", lose_the_record_and_fail)
    assert not once.core.flights._flights


def test_who_is_cut_off_while_it_looks_for_another_answer_than_reconcile_found_renews_nothing(
    once, store
):
    def cut_off(_do):
        raise CUT_OFF

    def times_out():
        raise TimeoutError

    def found(_):
        replace_record(store.store, "k")
        return Done(7)

    asking = once.options(lease="5min", reconcile=found)
    with pytest.raises(TimeoutError):
        asking.run("k", times_out)
    store.instead("get", cut_off)
    with pytest.raises(CUT_OFF):
        asking.run("k", answer_two)
    keys = [one._ticket.call.key for one in keeper._queued() if isinstance(one, Renewal)]
    assert "k" not in keys


def test_a_refused_settle_for_other_arguments_is_a_lost_lease(once, other, gate):
    def slow(amount: int):
        gate.enter()

    running = start(lambda: once.options(heartbeat=False).run("slow", slow, 1))
    gate.until_inside()
    once.forget("slow", force=True)
    other.run("slow", answer_two)
    gate.go_on.set()
    with pytest.raises(LeaseLostError):
        running.outcome()
    assert once.get("slow").value == 2


def test_what_reconcile_found_is_returned_even_while_it_cannot_be_settled(once, store, monkeypatch):
    monkeypatch.setattr(leaving_module, "SETTLE_PATIENCE", 0.0)

    def work():
        raise TimeoutError

    asking = once.options(reconcile=lambda record: Done(7))
    with pytest.raises(TimeoutError):
        asking.run("found", work)
    store.refuse("settle")
    assert asking.run("found", work) == 7
    until_status(once, "found", "completed")


def test_a_file_that_breaks_after_the_effect_is_no_reason_to_hide_it(once, store, monkeypatch):
    """The error says that it was done and not recorded, and nobody here is left waiting."""

    def broken(do):
        msg = "the file is damaged"
        raise ConfigurationError(msg)

    monkeypatch.setattr(leaving_module, "RETRY", 3600.0)
    store.instead("settle", broken)
    with pytest.raises(NotRecordedError) as caught:
        once.run("broken", answer_two)
    assert caught.value.result == 2
    with pytest.raises(InProgressError):
        once.options(wait=0).run("broken", answer_two)
    store.instead("release", broken)
    with pytest.raises(ValueError):  # the code's own error is not hidden either
        once.run("broken too", fail_definitely)


def test_a_winner_that_cannot_be_read_is_a_lost_lease_and_nobody_is_left_waiting(
    once, other, store, gate
):
    def unreadable(do):
        msg = "newer"
        raise UnreadableError(msg, key="slow")

    running = start(lambda: once.options(heartbeat=False).run("slow", gate.enter))
    gate.until_inside()
    other.forget("slow", force=True)
    store.instead("get", unreadable)
    gate.go_on.set()
    with pytest.raises(LeaseLostError):
        running.outcome()
    assert once.options(fingerprint=None).run("slow", answer_two) == 2


@pytest.mark.usefixtures("_believes_flights")
def test_an_attempt_that_is_cut_off_before_it_can_end_leaves_nobody_waiting(
    once, other, monkeypatch
):
    """Interrupted between the code and the store: the lease ends by itself, and nobody hangs."""

    def cut_off(self, value):
        raise CUT_OFF

    patient = once.options(retry_after="1h")
    with monkeypatch.context() as cut:
        cut.setattr(BaseRun, "settlement", cut_off)
        with pytest.raises(CUT_OFF):
            once.run("cut", answer_two)
        with pytest.raises(CUT_OFF), once.attempt("cut block"):
            pass
    for key in ("cut", "cut block"):
        assert once.get(key).status == "running"
        with pytest.raises(InProgressError):
            patient.options(wait=0).run(key, answer_two)
        assert other.forget(key, force=True)
        assert patient.run(key, answer_two) == 2


# The store comes back


def test_a_run_that_is_still_going_when_the_store_returns_is_recorded(once, store, gate):
    def work():
        gate.enter()
        return "done"

    store.refuse("claim", 2)
    opened = once.options(fail_mode="open", lease="90ms")
    running = start(lambda: opened.run("late", work))
    gate.until_inside()
    until_status(once, "late", "running")  # claimed late
    store.refuse("renew")
    until(lambda: store.calls["renew"] >= 3)  # and renewed
    gate.go_on.set()
    assert running.outcome() == "done"
    until_status(once, "late", "completed")
    assert once.run("late", work) == "done"
    assert once.get("late").attempt == 1


@pytest.mark.parametrize("ending", ["completed", "released"])
def test_a_run_that_ended_before_the_store_returns_is_recorded(once, store, ending):
    store.refuse("claim", 3)
    opened = once.options(fail_mode="open")
    if ending == "completed":
        assert opened.run("late", answer_two) == 2
    else:
        with pytest.raises(ValueError):
            opened.run("late", fail_definitely)
    until_status(once, "late", ending)


def test_a_run_beside_another_leaves_the_others_record_alone(once, store, gate, events):
    store.refuse("claim", 10_000)
    running = start(lambda: once.options(fail_mode="open").run("late", gate.enter))
    gate.until_inside()
    other = Once(store.store, observers=())  # which nobody cuts off
    assert other.options(fingerprint=None).run("late", answer_two) == 2
    store.heal()
    gate.go_on.set()
    running.outcome()
    until(lambda: "lost" in names(events))
    assert once.get("late").value == 2


def test_a_late_record_that_cannot_be_read_is_left_alone(once, store):
    def unreadable(do):
        msg = "newer"
        raise UnreadableError(msg, key="late")

    store.refuse("claim")
    for _ in range(2):  # whether the keeper comes before the end of the run, or after
        store.instead("claim", unreadable)
    assert once.options(fail_mode="open").run("late", answer_two) == 2
    until(lambda: store.calls["claim"] >= 2)
    assert once.get("late") is None


def test_while_the_store_is_out_of_reach_claims_are_refused_at_once(once, store, runs):
    store.cut_off("claim", 3)
    store.cut_off("get", 10_000)
    for _ in range(3):
        with pytest.raises(StoreError, match="refused"):
            once.run("breaker", runs.append, 1)
    asked = store.calls["claim"]
    for _ in range(20):
        with pytest.raises(StoreError, match="out of reach"):
            once.run("breaker", runs.append, 1)
    assert store.calls["claim"] == asked
    until(lambda: store.calls["get"] >= 2)  # somebody knocks until it answers
    store.heal()
    until(lambda: not once.core.breaker.open)
    once.run("breaker", runs.append, 1)
    assert runs == [1]


def test_an_answer_in_between_forgives_what_was_missed(once, store, runs):
    for _ in range(3):
        store.cut_off("claim", 2)
        for _ in range(2):
            with pytest.raises(StoreError, match="refused"):
                once.run("forgiven", runs.append, 1)
        once.run("forgiven", runs.append, 1)
        assert once.core.breaker.misses == 0
    assert runs == [1]
