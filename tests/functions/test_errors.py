"""How a call ends that raises: freed, kept, uncertain, reconciled, held."""

import pytest

from oncekey import (
    ConfigurationError,
    Done,
    InProgressError,
    NotDone,
    OutcomeUnknownError,
    RememberedError,
    Unknown,
    current,
)
from tests.functions.calls import CardDeclinedError, replace_by_completed, until_status


@pytest.mark.row("P6")
def test_an_error_frees_the_key_and_keeps_the_history(once, runs):
    def work():
        attempt = current()
        attempt.note(started=attempt.number)
        loaded = attempt.step("load", lambda: runs.append("load") or 5)
        if attempt.number == 1:
            msg = "between two steps"
            raise ValueError(msg)
        assert attempt.notes == {"started": 2}
        return loaded

    with pytest.raises(ValueError, match="between"):
        once.run("steps", work)
    record = once.get("steps")
    assert (record.status, record.uncertain, record.steps) == ("released", False, ("load",))
    assert record.failure == "ValueError: between two steps"
    assert once.run("steps", work) == 5
    assert runs == ["load"]


NOT_UTF8 = b"caf\xe9.txt".decode(errors="surrogateescape")
"""As Python names a file whose name is not UTF-8: with half a character, which has no encoding."""


@pytest.mark.row("P6")
@pytest.mark.parametrize("options", [{}, {"keep": OSError}, {"uncertain": OSError}])
def test_an_error_with_half_a_character_in_its_words_leaves_no_key_taken(once, options):
    error = OSError(f"cannot read {NOT_UTF8}")

    def work():
        raise error

    with pytest.raises(OSError, match="cannot read") as told:
        once.options(**options).run("file", work)
    assert told.value is error
    record = once.get("file")
    assert record.status == ("failed" if "keep" in options else "released")
    assert record.failure == r"OSError: cannot read caf\udce9.txt"
    if "keep" in options:
        with pytest.raises(RememberedError, match="cannot read"):
            once.options(**options).run("file", work)


def test_a_reason_with_half_a_character_frees_the_key(once):
    with once.attempt("file") as attempt:
        attempt.release(f"{NOT_UTF8} is missing")
    assert once.get("file").status == "released"


@pytest.mark.row("P6")
def test_a_kept_error_is_raised_again_as_itself(once, runs):
    def charge():
        runs.append(1)
        raise CardDeclinedError(51, "no funds")

    keeping = once.options(keep=CardDeclinedError)
    for _ in range(2):
        with pytest.raises(CardDeclinedError, match="no funds") as caught:
            keeping.run("declined", charge)
        assert caught.value.code == 51
    assert runs == [1]


@pytest.mark.row("P6")
def test_any_kept_error_is_remembered_in_words(once, runs):
    def charge():
        runs.append(1)
        raise CardDeclinedError(51, "no funds")

    keeping = once.options(on_error="keep")
    with pytest.raises(CardDeclinedError):
        keeping.run("declined", charge)
    with pytest.raises(RememberedError, match="no funds") as caught:
        keeping.run("declined", charge)
    assert caught.value.type_name == "CardDeclinedError"
    assert runs == [1]


@pytest.mark.row("P8")
@pytest.mark.parametrize("error", [TimeoutError, ConnectionError, SystemExit, KeyboardInterrupt])
def test_an_uncertain_end_frees_the_key_and_says_so(once, runs, error):
    def work():
        runs.append(current().uncertain)
        current().note(reference="abc")
        if len(runs) == 1:
            raise error
        return "done"

    with pytest.raises(error):
        once.run("uncertain", work)
    record = once.get("uncertain")
    assert (record.status, record.uncertain) == ("released", True)
    assert record.notes == {"reference": "abc"}
    assert once.run("uncertain", work) == "done"
    assert runs == [False, True]


@pytest.mark.row("P8", "P13")
def test_an_uncertain_end_is_held_under_hold_until_it_is_resolved(once, runs, events):
    def work():
        runs.append(1)
        raise TimeoutError

    holding = once.options(on_crash="hold")
    with pytest.raises(TimeoutError):
        holding.run("held", work)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError) as caught:
            holding.run("held", work)
        assert caught.value.key == "held"
    assert runs == [1]
    assert holding.resolve("held", result={"paid": True})
    assert holding.run("held", work) == {"paid": True}
    assert not holding.resolve("held", result=1)
    assert "held" in [event.name for event in events]


def test_a_held_record_can_be_resolved_with_an_error_or_a_retry(once, runs):
    def work():
        runs.append(1)
        if len(runs) < 3:
            raise TimeoutError
        return "done"

    holding = once.options(on_crash="hold", keep=CardDeclinedError)
    with pytest.raises(TimeoutError):
        holding.run("a", work)
    assert holding.resolve("a", error=CardDeclinedError(51, "no funds"))
    with pytest.raises(CardDeclinedError):
        holding.run("a", work)
    with pytest.raises(TimeoutError):
        holding.run("b", work)
    assert holding.resolve("b", retry=True)
    assert holding.run("b", work) == "done"
    assert len(runs) == 3


@pytest.mark.row("P13")
def test_reconcile_is_asked_after_an_uncertain_end_and_settles(once, runs):
    asked = []

    def reconcile(record):
        asked.append(record.notes)
        return Done({"charge": record.notes["reference"]})

    def charge():
        runs.append(1)
        current().note(reference="gw-1")
        raise TimeoutError

    reconciling = once.options(reconcile=reconcile)
    with pytest.raises(TimeoutError):
        reconciling.run("pay", charge)
    assert reconciling.run("pay", charge) == {"charge": "gw-1"}
    assert reconciling.run("pay", charge) == {"charge": "gw-1"}
    assert runs == [1]
    assert asked == [{"reference": "gw-1"}]


def test_reconcile_is_not_asked_after_a_definite_error(once, runs):
    def reconcile(record):
        pytest.fail("nothing is uncertain")

    def work():
        runs.append(1)
        if len(runs) == 1:
            raise ValueError
        return "done"

    reconciling = once.options(reconcile=reconcile)
    with pytest.raises(ValueError):
        reconciling.run("definite", work)
    assert reconciling.run("definite", work) == "done"


@pytest.mark.row("P13")
def test_not_done_is_believed_only_after_the_quiet_period(once, clock, runs):
    def work():
        runs.append(current().number)
        if len(runs) == 1:
            raise TimeoutError
        return "done"

    quiet = once.options(reconcile=lambda record: NotDone(), lease="1min", wait=0, max_attempts=2)
    with pytest.raises(TimeoutError):
        quiet.run("quiet", work)
    for _ in range(3):  # asking does not start the period anew, and is no attempt
        clock.advance("30s")
        with pytest.raises(InProgressError) as caught:
            quiet.run("quiet", work)
    assert 0 < caught.value.retry_after <= 30
    clock.advance("30s")
    assert quiet.run("quiet", work) == "done"
    assert runs == [1, 2]


def test_not_done_runs_at_once_where_the_effect_is_keyed(once, runs):
    def work():
        runs.append(1)
        if len(runs) == 1:
            raise TimeoutError
        return "done"

    keyed = once.options(reconcile=lambda record: NotDone(), quiet=0)
    with pytest.raises(TimeoutError):
        keyed.run("keyed", work)
    assert keyed.run("keyed", work) == "done"


def test_a_patient_caller_waits_for_the_quiet_period(once, clock, runs):
    asked = []

    def reconcile(record):
        asked.append(1)
        if len(asked) == 2:
            clock.advance("1h")
        return NotDone()

    def work():
        runs.append(1)
        if len(runs) == 1:
            raise TimeoutError
        return "done"

    quiet = once.options(reconcile=reconcile, quiet="10ms")
    with pytest.raises(TimeoutError):
        quiet.run("patient", work)
    assert quiet.run("patient", work) == "done"
    assert len(asked) == 3


def test_unknown_holds_even_under_retry(once, runs):
    def work():
        runs.append(1)
        raise TimeoutError

    asking = once.options(reconcile=lambda record: Unknown())
    with pytest.raises(TimeoutError):
        asking.run("unknown", work)
    with pytest.raises(OutcomeUnknownError):
        asking.run("unknown", work)
    assert once.get("unknown").status == "held"
    assert runs == [1]


def test_a_reconcile_that_fails_leaves_everything_as_it_was(once, runs):
    def reconcile(record):
        raise ConnectionRefusedError

    def work():
        runs.append(1)
        raise TimeoutError

    asking = once.options(reconcile=reconcile)
    with pytest.raises(TimeoutError):
        asking.run("asking", work)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            asking.run("asking", work)
    record = once.get("asking")
    assert (record.status, record.uncertain, record.attempt) == ("released", True, 1)
    with pytest.raises(ConfigurationError, match=r"Done\(value\)"):
        once.options(reconcile=lambda record: "yes").run("asking", work)
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        once.options(reconcile=lambda record: Done(object())).run("asking", work)
    assert runs == [1]


def test_a_reconcile_that_is_closed_waits_for_nothing_more(once):
    def work():
        raise TimeoutError

    def reconcile(record):
        raise GeneratorExit

    with pytest.raises(TimeoutError):
        once.run("closed", work)
    before = once.get("closed").token
    with pytest.raises(GeneratorExit):
        once.options(reconcile=reconcile, quiet=0).run("closed", work)
    until_status(once, "closed", "released")  # by the keeper
    assert once.get("closed").token > before
    assert once.get("closed").attempt == 1


def test_who_could_not_give_its_claim_back_does_not_run_beside_it(once, store, clock, runs):
    def work():
        runs.append(1)
        raise TimeoutError

    def reconcile(record):
        store.refuse("claim", 100)  # who asks again is not answered, and would run all the same
        return NotDone()

    asking = once.options(reconcile=reconcile, lease="1min", wait="1s", fail_mode="open")
    with pytest.raises(TimeoutError):
        asking.run("postponed", work)
    store.refuse("release")
    with pytest.raises(InProgressError):  # the quiet period is not over
        asking.run("postponed", work)
    assert runs == [1]
    until_status(once, "postponed", "released")  # by the keeper
    assert once.get("postponed").attempt == 1


def test_what_reconcile_found_gives_way_to_whoever_was_quicker(once, other, clock):
    def reconcile(record):
        clock.advance("10min")  # our lease ends while we ask
        replace_by_completed(other, "slow")
        return Done("found")

    def work():
        raise TimeoutError

    asking = once.options(reconcile=reconcile, heartbeat=False)
    with pytest.raises(TimeoutError):
        asking.run("slow", work)
    assert asking.run("slow", work) == "winner"


def test_after_its_attempts_are_used_up_the_key_is_held(once, runs):
    def work():
        runs.append(1)
        raise ValueError

    twice = once.options(max_attempts=2)
    for _ in range(2):
        with pytest.raises(ValueError):
            twice.run("attempts", work)
    with pytest.raises(OutcomeUnknownError):
        twice.run("attempts", work)
    assert len(runs) == 2


def test_a_group_with_a_lost_connection_is_uncertain_and_a_kept_one_comes_back(once, runs):
    def failing(*errors):
        def fail():
            runs.append(1)
            raise ExceptionGroup("several", errors)

        return fail

    held = once.options(on_crash="hold", keep=CardDeclinedError)
    with pytest.raises(ExceptionGroup):
        held.run("lost", failing(ValueError(), ConnectionResetError()))
    assert once.get("lost").status == "held"
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as caught:
            held.run("kept", failing(CardDeclinedError(51, "no funds")))
        assert type(caught.value.exceptions[0]) is CardDeclinedError
    assert len(runs) == 2
