"""What a caller does next: every answer, every ending, every word of `reconcile`."""

import asyncio
from dataclasses import dataclass

import httpx
import pytest
import requests
import stripe
import urllib3

from oncekey.core.codec import PLAIN, Codec, encode_error
from oncekey.core.decide import (
    Complete,
    Done,
    Fail,
    Hold,
    Leave,
    NotDone,
    Postpone,
    Proceed,
    Reconcile,
    Refuse,
    Serve,
    Unknown,
    Wait,
    after_claim,
    after_error,
    after_error_async,
    after_reconcile,
    after_refusal,
    busy,
    in_progress,
    lost,
    reused,
    served,
    unknown,
)
from oncekey.core.requests import Busy, Granted, Held, Mismatch, Replay, Spent
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    KeyReusedError,
    LeaseLostError,
    OutcomeUnknownError,
    RememberedError,
    ResultNotKeptError,
    UnreadableError,
)
from oncekey.policy import Policy

NOW = 1_767_225_600_000_000
SECOND = 1_000_000
REUSED_WORDS = (
    "'charge:42' in 'billing' was used with other arguments; a new operation needs a new key"
)
HELD_WORDS = (
    "'charge:42' in 'billing' is held: an attempt ended without a definite outcome; "
    "find out whether the effect happened, then resolve it with a result, an error or a retry"
)


def said_nothing(record):
    """A reconcile that is never asked here."""


# After a claim


def test_a_granted_claim_runs(calling, recorded):
    assert after_claim(Granted(recorded(), NOW), calling(), patience=0) == Proceed()


def test_after_an_uncertain_end_reconcile_is_asked_if_there_is_one(calling, recorded):
    answer = Granted(recorded(uncertain=True), NOW)
    asking = calling(reconcile=said_nothing)
    assert after_claim(answer, asking, patience=0) == Reconcile()
    assert after_claim(answer, calling(), patience=0) == Proceed()
    assert after_claim(Granted(recorded(), NOW), asking, patience=0) == Proceed()


def test_a_settled_record_is_served(calling, recorded):
    assert after_claim(Replay(recorded(status="completed"), NOW), calling(), patience=0) == Serve()


def test_a_busy_record_is_asked_for_again_later_and_later(calling, recorded):
    answer = Busy(recorded(lease_end=NOW + 300 * SECOND), NOW)
    pauses = [after_claim(answer, calling(), patience=10, polls=n) for n in range(8)]
    assert pauses == [
        Wait(pytest.approx(s), 10) for s in (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1)
    ]


def test_however_often_it_was_asked_for_the_pause_stays_the_same(calling, recorded):
    answer = Busy(recorded(lease_end=NOW + 300 * SECOND), NOW)
    assert after_claim(answer, calling(), patience=10, polls=5000) == Wait(0.1, 10)


def test_nobody_waits_longer_than_he_would_or_than_the_lease_lasts(calling, recorded):
    answer = Busy(recorded(lease_end=NOW + 50_000), NOW)
    left = pytest.approx(0.05)
    assert after_claim(answer, calling(), patience=0.01, polls=9) == Wait(0.01, 0.01)
    assert after_claim(answer, calling(), patience=10, polls=9) == Wait(left, left)
    over = Busy(recorded(lease_end=NOW - 1), NOW)
    assert after_claim(over, calling(), patience=10, polls=9) == Wait(0.0)


def test_without_patience_a_busy_record_is_a_refusal(calling, recorded):
    answer = Busy(recorded(lease_end=NOW + 300 * SECOND), NOW)
    choice = after_claim(answer, calling(), patience=0)
    assert isinstance(choice, Refuse)
    assert isinstance(choice.error, InProgressError)
    assert choice.error.retry_after == 1.0
    assert str(choice.error) == "'charge:42' in 'billing' is in progress; ask again in 1 s"
    assert (choice.error.key, choice.error.scope) == ("charge:42", "billing")


def test_come_back_at_the_latest_when_the_lease_ends(calling, recorded):
    soon = Busy(recorded(lease_end=NOW + SECOND // 4), NOW)
    assert busy(soon, calling()).retry_after == 0.25
    assert busy(Busy(recorded(lease_end=NOW - 5), NOW), calling()).retry_after == 0.0
    late = Busy(recorded(lease_end=NOW + 300 * SECOND), NOW)
    assert busy(late, calling(policy=Policy(retry_after="7s"))).retry_after == 7.0
    assert in_progress(calling(), 3.0).retry_after == 3.0


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (
            Mismatch,
            KeyReusedError,
            REUSED_WORDS,
        ),
        (
            Held,
            OutcomeUnknownError,
            HELD_WORDS,
        ),
    ],
)
def test_other_arguments_and_held_records_are_refused_at_once(
    calling, recorded, kind, error, words
):
    choice = after_claim(kind(recorded(), NOW), calling(), patience=10)
    assert isinstance(choice, Refuse)
    assert type(choice.error) is error
    assert str(choice.error) == words


def test_a_spent_claim_is_made_again_at_once(calling, recorded):
    assert after_claim(Spent(recorded(), NOW), calling(), patience=0) == Wait(0.0)


def test_refusals_name_the_key(calling):
    for error in (reused(calling()), unknown(calling()), lost(calling())):
        assert (error.key, error.scope) == ("charge:42", "billing")
    assert isinstance(lost(calling()), LeaseLostError)
    assert "took it over, or the record was removed" in str(lost(calling()))


# After an error


class Declined(Exception):  # noqa: N818 - as users name theirs
    pass


FREED = Leave(uncertain=False, hold=False)
UNCERTAIN = Leave(uncertain=True, hold=False)
HELD = Leave(uncertain=True, hold=True)


@pytest.mark.parametrize(
    ("policy", "error", "ending"),
    [
        (Policy(), ValueError(), FREED),
        (Policy(on_crash="hold"), ValueError(), FREED),
        (Policy(keep=Declined), Declined(), Fail()),
        (Policy(keep=Exception), Declined(), Fail()),
        (Policy(keep=Declined), ValueError(), FREED),
        (Policy(on_error="keep"), ValueError(), Fail()),
        (Policy(), TimeoutError(), UNCERTAIN),
        (Policy(), ConnectionResetError(), UNCERTAIN),
        (Policy(on_error="keep"), TimeoutError(), UNCERTAIN),
        (Policy(on_crash="hold"), TimeoutError(), HELD),
        (Policy(keep=TimeoutError), TimeoutError(), Fail()),
        (Policy(keep=TimeoutError, on_crash="hold"), TimeoutError(), Fail()),
        (Policy(uncertain=Declined), Declined(), UNCERTAIN),
        (Policy(uncertain=Declined), TimeoutError(), FREED),
        (Policy(uncertain=()), TimeoutError(), FREED),
        (Policy(keep=Declined, uncertain=Declined), Declined(), Fail()),
        (Policy(), KeyboardInterrupt(), UNCERTAIN),
        (Policy(), SystemExit(1), UNCERTAIN),
        (Policy(), asyncio.CancelledError(), UNCERTAIN),
        (Policy(), GeneratorExit(), UNCERTAIN),
        (Policy(on_crash="hold"), SystemExit(0), HELD),
        (Policy(on_error="keep"), KeyboardInterrupt(), UNCERTAIN),
        (Policy(keep=BaseException), KeyboardInterrupt(), UNCERTAIN),
        (Policy(keep=asyncio.CancelledError), asyncio.CancelledError(), UNCERTAIN),
        (Policy(uncertain=()), SystemExit(1), UNCERTAIN),
    ],
)
def test_how_an_attempt_ends_after_its_code_raised(calling, policy, error, ending):
    assert after_error(error, calling(policy=policy)) == ending


def group(*errors):
    return BaseExceptionGroup("several", errors)


@pytest.mark.parametrize(
    ("policy", "error", "blocking", "coroutine"),
    [
        (Policy(), group(ValueError()), FREED, UNCERTAIN),
        (Policy(), group(ValueError(), ConnectionResetError()), UNCERTAIN, UNCERTAIN),
        (Policy(on_crash="hold"), group(group(TimeoutError()), Declined()), HELD, HELD),
        (Policy(), group(ValueError(), KeyboardInterrupt()), UNCERTAIN, UNCERTAIN),
        (Policy(keep=Declined), group(Declined(), group(Declined())), Fail(), Fail()),
        (Policy(keep=Declined), group(Declined(), ValueError()), FREED, UNCERTAIN),
        (Policy(keep=Declined, definite=ValueError), group(Declined(), ValueError()), FREED, FREED),
        (Policy(definite=ValueError), group(ValueError()), FREED, FREED),
        (Policy(definite=ExceptionGroup), group(TypeError()), FREED, FREED),
        (Policy(keep=ExceptionGroup), group(TypeError()), Fail(), Fail()),
        (Policy(uncertain=ExceptionGroup), group(ValueError()), FREED, UNCERTAIN),
        (Policy(on_error="keep"), group(ValueError()), Fail(), UNCERTAIN),
    ],
)
def test_the_worst_of_a_group_counts_and_its_siblings_were_cut_off(
    calling, policy, error, blocking, coroutine
):
    call = calling(policy=policy)
    assert after_error(error, call) == blocking
    assert after_error_async(error, call) == coroutine


def test_what_is_named_definite_is_never_uncertain(calling):
    call = calling(policy=Policy(definite=ConnectionRefusedError, on_crash="hold"))
    assert after_error(ConnectionRefusedError(), call) == FREED
    assert after_error(ConnectionResetError(), call) == HELD
    assert after_error(ConnectionRefusedError(), call, unsure=True) == HELD


def test_an_error_that_is_kept_by_default_is_not_kept_where_a_step_is_not_noted(calling):
    assert after_error(ValueError(), calling(policy=Policy(on_error="keep")), unsure=True) == (
        UNCERTAIN
    )


def test_who_can_reconcile_does_not_hold(calling):
    call = calling(policy=Policy(on_crash="hold"), reconcile=said_nothing)
    assert after_error(TimeoutError(), call) == UNCERTAIN
    assert after_error(SystemExit(1), call) == UNCERTAIN


@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadTimeout(""),
        httpx.ConnectError(""),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        stripe.APIConnectionError("lost"),
        urllib3.exceptions.ProtocolError(),
    ],
    ids=lambda error: type(error).__module__,
)
def test_errors_of_clients_are_uncertain_wherever_those_of_the_network_are(calling, error):
    assert after_error(error, calling()) == UNCERTAIN
    also = Policy(uncertain=(ValueError, TimeoutError, ConnectionError))
    assert after_error(error, calling(policy=also)) == UNCERTAIN
    other = Policy(uncertain=ValueError)
    assert after_error(error, calling(policy=other)) == Leave(uncertain=False, hold=False)


def test_other_errors_of_clients_are_definite(calling):
    refused = httpx.InvalidURL("no")
    assert after_error(refused, calling()) == Leave(uncertain=False, hold=False)


# After a refused settle


def test_a_refused_settle_is_answered_by_the_winner(calling, recorded):
    call = calling(fingerprint="1:a")
    for status in ("completed", "failed"):
        assert after_refusal(recorded(status=status, fingerprint="1:a"), call) == Serve()
        assert after_refusal(recorded(status=status, fingerprint=None), call) == Serve()


def test_where_nobody_has_won_the_lease_is_lost(calling, recorded):
    call = calling(fingerprint="1:a")
    open_records = [recorded(status=s, fingerprint="1:a") for s in ("running", "released", "held")]
    for record in [None, *open_records, recorded(status="completed", fingerprint="1:b")]:
        choice = after_refusal(record, call)
        assert isinstance(choice, Refuse)
        assert isinstance(choice.error, LeaseLostError)


# Serving


def test_a_completed_record_answers_with_its_value(calling, recorded):
    record = recorded(status="completed", result=PLAIN.encode([1]))
    assert served(record, calling()) == [1]
    assert served(recorded(status="completed", result=PLAIN.encode(None)), calling()) is None


@dataclass
class Order:
    number: int


def test_the_value_has_the_type_of_the_annotation(calling, recorded):
    codec = Codec(Order)
    record = recorded(status="completed", result=codec.encode(Order(7)))
    assert served(record, calling(codec=codec)) == Order(7)


def test_a_result_that_was_not_kept_is_an_error_and_no_run(calling, recorded):
    with pytest.raises(ResultNotKeptError) as caught:
        served(recorded(status="completed", result=None), calling())
    words = (
        "'charge:42' in 'billing' was completed, but its result was not kept; it does not run again"
    )
    assert str(caught.value) == words


def test_a_kept_failure_is_raised_as_itself(calling, recorded):
    record = recorded(status="failed", error=encode_error(Declined("no funds")))
    with pytest.raises(Declined, match=r"^no funds$"):
        served(record, calling(policy=Policy(keep=Declined)))


def test_a_kept_failure_of_an_unknown_type_is_remembered_in_words(calling, recorded):
    record = recorded(status="failed", error=encode_error(Declined("no funds")))
    with pytest.raises(RememberedError) as caught:
        served(record, calling())
    assert (caught.value.type_name, caught.value.message) == ("Declined", "no funds")
    assert (caught.value.key, caught.value.scope) == ("charge:42", "billing")


@pytest.mark.parametrize(
    "facts",
    [
        {"status": "completed", "result": b"\xc1"},
        {"status": "completed", "result": PLAIN.encode("text")},
        {"status": "failed", "error": b"\xc1"},
        {"status": "failed", "error": None},
    ],
)
def test_what_cannot_be_read_is_an_error_and_no_run(calling, recorded, facts):
    with pytest.raises(UnreadableError) as caught:
        served(recorded(**facts), calling(codec=Codec(Order)))
    opening = f"'charge:42' in 'billing' was {facts['status']}, but what is stored does not fit "
    assert str(caught.value).startswith(opening + "the return annotation or this version (")
    assert str(caught.value).endswith("); it does not run again")


# What `reconcile` says


def test_done_completes_with_its_value(calling, recorded):
    answer = Granted(recorded(uncertain=True), NOW)
    assert after_reconcile(Done(7), answer, calling()) == Complete(PLAIN.encode(7))
    assert after_reconcile(Done(), answer, calling()) == Complete(PLAIN.encode(None))
    typed = calling(codec=Codec(Order))
    assert after_reconcile(Done(Order(7)), answer, typed) == Complete(Codec(Order).encode(Order(7)))


def test_done_with_a_value_that_cannot_be_kept_is_a_mistake(calling, recorded):
    with pytest.raises(ConfigurationError) as caught:
        after_reconcile(Done((1, 2)), Granted(recorded(), NOW), calling())
    assert str(caught.value) == (
        "reconcile found 'charge:42' in 'billing' done, with a value that cannot be kept: "
        "tuple would come back as list"
    )


@pytest.mark.parametrize(
    ("since", "quiet", "choice"),
    [
        (0, "10s", Postpone(10.0)),
        (4 * SECOND, "10s", Postpone(6.0)),
        (10 * SECOND - 1, "10s", Postpone(0.000001)),
        (10 * SECOND, "10s", Proceed()),
        (11 * SECOND, "10s", Proceed()),
        (0, 0, Proceed()),
        (599 * SECOND, None, Postpone(1.0)),
        (600 * SECOND, None, Proceed()),
    ],
)
def test_not_done_is_believed_only_after_the_quiet_period(calling, recorded, since, quiet, choice):
    answer = Granted(recorded(uncertain=True, finished=NOW - since), NOW)
    call = calling(policy=Policy(quiet=quiet))
    assert after_reconcile(NotDone(), answer, call) == choice


def test_unknown_holds(calling, recorded):
    assert after_reconcile(Unknown(), Granted(recorded(), NOW), calling()) == Hold()


@pytest.mark.parametrize("said", [None, True, "done", Done, 7])
def test_any_other_word_is_a_mistake(calling, recorded, said):
    with pytest.raises(ConfigurationError) as caught:
        after_reconcile(said, Granted(recorded(), NOW), calling())
    assert str(caught.value) == (
        f"reconcile must return Done(value), NotDone() or Unknown(), but it returned {said!r}"
    )
