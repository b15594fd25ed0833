"""The attempt as the code sees it: blocks, notes, steps, and what it refuses."""

from contextvars import ContextVar
from decimal import Decimal

import pytest

from oncekey import (
    ConfigurationError,
    KeyReusedError,
    NotDone,
    ResultNotKeptError,
    UnreadableError,
    current,
)
from tests.functions.calls import CardDeclinedError, Receipt, answer_two


def test_an_attempt_block_runs_once(once, runs):
    def import_rows():
        with once.attempt("import:42", fingerprint=b"body") as attempt:
            if not attempt.duplicate:
                runs.append(1)
                attempt.note(upload="u-1")
                rows = attempt.step("load", lambda: [1, 2])
                attempt.complete(rows)
            return attempt.result

    assert import_rows() == [1, 2]
    assert import_rows() == [1, 2]
    assert runs == [1]
    assert once.get("import:42").notes == {"upload": "u-1"}
    with pytest.raises(KeyReusedError), once.attempt("import:42", fingerprint=b"other"):
        pytest.fail("it must not run")


def test_a_block_without_complete_completes_with_nothing(once):
    with once.attempt("nothing") as attempt:
        assert not attempt.duplicate
        with pytest.raises(ConfigurationError, match="before complete"):
            _ = attempt.result
    with once.attempt("nothing") as attempt:
        assert attempt.duplicate
        assert attempt.result is None


def test_a_block_may_give_its_key_back(once, events):
    with once.attempt("later") as attempt:
        attempt.note(seen=1)
        attempt.release("not yet")
        with pytest.raises(ConfigurationError, match="after 'later' had ended"):
            attempt.release()
    assert events[-1].name == "released"
    record = once.get("later")
    assert (record.status, record.notes) == ("released", {"seen": 1})
    with once.attempt("later") as attempt:
        assert (attempt.number, attempt.notes) == (2, {"seen": 1})
    with once.attempt("later") as attempt, pytest.raises(ConfigurationError, match="a duplicate"):
        attempt.release()


@pytest.mark.parametrize(("on_crash", "status"), [("retry", "released"), ("hold", "held")])
def test_a_block_may_say_that_it_does_not_know_how_it_ended(once, on_crash, status):
    with once.options(on_crash=on_crash).attempt("unsure") as attempt:
        attempt.release("no answer", uncertain=True)
    record = once.get("unsure")
    assert (record.status, record.uncertain) == (status, True)


def test_only_a_response_can_be_kept_whatever_it_is(once):
    with once.attempt("kept") as attempt, pytest.raises(ConfigurationError, match="HTTP"):
        attempt.keep()


def test_an_attempt_with_a_response_may_be_told_to_keep_it(once):
    with once.attempt("request") as attempt:
        attempt._run.keeps = False  # as the middlewares do
        attempt.keep()
        assert attempt._run.keeps


def test_a_block_that_raises_frees_or_keeps(once):
    keeping = once.options(keep=CardDeclinedError)
    with pytest.raises(ValueError), keeping.attempt("block"):
        raise ValueError
    with pytest.raises(CardDeclinedError), keeping.attempt("block") as attempt:
        assert attempt.number == 2
        raise CardDeclinedError(51, "no funds")
    with keeping.attempt("block") as attempt, pytest.raises(CardDeclinedError):
        _ = attempt.result


def test_a_block_that_raises_after_complete_stays_completed(once):
    with pytest.raises(ValueError), once.attempt("after") as attempt:
        attempt.complete(7)
        assert attempt.result == 7
        raise ValueError
    assert once.get("after").value == 7


def test_a_block_can_say_what_it_returns(once):
    for _ in range(2):
        with once.attempt("typed", returns=Receipt) as attempt:
            if not attempt.duplicate:
                attempt.complete(Receipt("r", Decimal(1)))
            assert attempt.result == Receipt("r", Decimal(1))


def test_a_duplicate_has_nothing_to_do(once):
    once.run("dup", answer_two)
    with once.options(fingerprint=None).attempt("dup") as attempt:
        with pytest.raises(ConfigurationError, match="duplicate"):
            attempt.note(late=True)
        with pytest.raises(ConfigurationError, match="duplicate"):
            attempt.complete()
        with pytest.raises(ConfigurationError, match="duplicate"):
            attempt.step("s", answer_two)
        with pytest.raises(ConfigurationError, match="duplicate"):
            attempt.downstream_key("s")
        with pytest.raises(ConfigurationError, match="duplicate"):
            _ = attempt.token
        assert (attempt.key, attempt.scope, attempt.protected) == ("dup", None, True)
        assert attempt.record.value == 2


def test_what_an_attempt_refuses_while_it_runs(once):
    with once.attempt("misuse") as attempt:
        attempt.step("one", answer_two)
        with pytest.raises(ConfigurationError, match="already"):
            attempt.step("one", answer_two)
        with pytest.raises(ConfigurationError, match="needs a name"):
            attempt.step("", answer_two)
        with pytest.raises(ConfigurationError, match="name of the effect"):
            attempt.downstream_key("")
        with pytest.raises(ConfigurationError, match="plain values"):
            attempt.note(thing=object())
        with pytest.raises(ConfigurationError, match="64 KiB"):
            attempt.note(thing="x" * 70_000)
        attempt.complete()
        with pytest.raises(ConfigurationError, match="ended"):
            attempt.complete()


def test_a_step_whose_result_cannot_be_kept_is_not_done_twice(once, events):
    def work(error):
        current().step("odd", object)
        raise error

    with pytest.raises(ValueError):
        once.options(fingerprint=None).run("odd", work, ValueError)
    assert "not_kept" in [event.name for event in events]
    with pytest.raises(ResultNotKeptError, match="odd"):
        once.options(fingerprint=None).run("odd", work, ValueError)


def test_a_step_that_was_kept_as_something_else_is_unreadable(once):
    def text() -> str:
        return "five"

    def number() -> int:
        return 5

    def work(step):
        current().step("five", step)
        raise ValueError

    loose = once.options(fingerprint=None)
    with pytest.raises(ValueError):
        loose.run("kind", work, text)
    with pytest.raises(UnreadableError, match="five"):
        loose.run("kind", work, number)


def test_notes_that_cannot_be_read_are_an_error_and_nothing_runs_on(once, store):
    def work():
        _ = current().notes

    def garble(do):
        answer = do()
        return type(answer)(
            type(answer.record)(
                **{f: getattr(answer.record, f) for f in answer.record.__struct_fields__}
                | {"noted": b"\xc1"}
            ),
            answer.now,
        )

    store.instead("claim", garble)
    with pytest.raises(UnreadableError, match="notes"):
        once.run("garbled", work)


@pytest.mark.row("P12")
def test_the_current_attempt_is_there_while_the_code_runs_and_not_after(once):
    with pytest.raises(ConfigurationError, match="no attempt"):
        current()

    def outer():
        mine = current()

        def inner():
            assert current() is not mine
            return current().key

        assert once.run("inner", inner) == "inner"
        assert current() is mine
        return mine.key

    assert once.run("outer", outer) == "outer"
    with pytest.raises(ConfigurationError, match="no attempt"):
        current()


def test_a_call_inside_of_itself_is_refused_at_once(once, store):
    def outer():
        return once.run("self", outer)

    with pytest.raises(ConfigurationError, match="inside itself"):
        once.run("self", outer)
    assert store.calls["claim"] == 1

    def sideways():
        return once.run("other", lambda: once.run("self2", answer_two))

    assert once.run("self2x", sideways) == 2


def test_code_that_completes_by_itself_is_taken_at_its_word(once):
    def work():
        current().complete(1)
        return 2

    assert once.run("itself", work) == 1
    assert once.run("itself", work) == 1

    def fails():
        current().complete(1)
        raise ValueError

    with pytest.raises(ValueError):
        once.run("itself2", fails)
    assert once.get("itself2").value == 1


request_id = ContextVar("request_id", default="none")
called_by = request_id.get


@pytest.mark.row("P12")
def test_the_context_of_the_caller_follows_the_call(once):
    """A request id that the caller set is there in the code, in its steps and in reconcile."""
    seen = []

    def reconcile(record):
        seen.append(("reconcile", called_by()))
        return NotDone()

    def load():
        seen.append(("step", called_by()))

    def work():
        seen.append(("code", called_by()))
        current().step("load", load)
        raise TimeoutError

    asking = once.options(reconcile=reconcile, quiet=0)
    for name in ("req-1", "req-2"):
        request_id.set(name)
        with pytest.raises(TimeoutError):
            asking.options(reference=name).run("context", work)
        assert called_by() == name
    assert seen == [
        ("code", "req-1"),
        ("step", "req-1"),
        ("reconcile", "req-2"),
        ("code", "req-2"),
    ]
    assert once.get("context").reference == "req-2"
