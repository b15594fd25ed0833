"""Actors of Dramatiq on its broker for tests, plain calls, and mistakes at declaration."""

import functools
import logging
import threading

import dramatiq
import pytest
from dramatiq import RateLimitExceeded, Retry, Worker, pipeline
from dramatiq.brokers.stub import StubBroker
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend

from oncekey import ConfigurationError, InProgressError, KeyReusedError, Once, current
from oncekey.core.requests import Claim
from oncekey.jobs import by_fields, by_payload, by_task_id
from oncekey.jobs.dramatiq import OnceMiddleware, PutBack, enqueue_once
from oncekey.testing import disabled
from tests.patience import PATIENCE

BY_ORDER = by_fields("order")
SOON = {"retry_after": "20ms"}


@pytest.fixture
def once():
    once = Once("memory://")
    yield once
    once.close()


class Stub:
    """A broker in memory with one worker; actors store their results."""

    def __init__(self, once, middleware=None):
        self.broker = StubBroker(middleware=middleware, fail_fast_default=False)
        self.backend = StubBackend()
        self.broker.add_middleware(Results(backend=self.backend, store_results=True))
        self.broker.add_middleware(OnceMiddleware(once))
        self.actor = functools.partial(dramatiq.actor, broker=self.broker)
        self.worker = Worker(self.broker, worker_timeout=10, worker_threads=2)
        self.worker.start()

    def result(self, message):
        return message.get_result(backend=self.backend, block=True, timeout=int(PATIENCE * 1000))

    def close(self):
        self.worker.stop()
        self.broker.close()


@pytest.fixture
def stub(once):
    stub = Stub(once)
    yield stub
    stub.close()


@pytest.fixture
def bare(once):
    """Without Dramatiq's own middleware: nobody sends a message again, and errors are successes."""
    bare = Stub(once, [])
    yield bare
    bare.close()


@pytest.fixture
def ran():
    return []


@pytest.fixture
def charge(stub, ran):
    @stub.actor(actor_name="charge", once_key=BY_ORDER, once_options=SOON)
    def charge(order: str, amount: int = 40) -> str:
        ran.append(order)
        return f"{order}:{amount}:{len(ran)}"

    return charge


def test_messages_with_one_key_run_once(stub, charge, ran, once):
    first = charge.send("a")
    assert stub.result(first) == "a:40:1"
    assert stub.result(charge.send("a", amount=41)) == "a:40:1"
    assert stub.result(charge.send("b")) == "b:40:2"
    record = once.get("a", scope="charge")
    assert (record.label, record.reference) == ("charge", first.message_id)


def test_a_plain_call_with_the_key_is_answered_too(stub, charge, ran):
    assert charge("a") == charge("a") == stub.result(charge.send("a")) == "a:40:1"


def test_a_plain_call_without_an_id_runs_unprotected(stub, ran, once):
    @stub.actor(once=True)
    def count(down: int) -> int:
        ran.append(down)
        return count(down - 1) + 1 if down else 0

    assert (count(0), count(0)) == (0, 0)
    assert list(once.scan()) == []
    assert stub.result(count.send(2)) == 2  # and so is a call from inside
    assert len(list(once.scan())) == 1


def test_an_actor_that_does_not_ask_is_left_alone(stub, ran, once):
    @stub.actor
    def silent() -> None:
        ran.append("silent")

    @stub.actor(once=False, once_key=BY_ORDER)
    def switched_off(order: str) -> None:
        ran.append(order)

    for message in (silent.send(), silent.send(), switched_off.send("a"), switched_off.send("a")):
        stub.result(message)
    assert sorted(ran) == ["a", "a", "silent", "silent"]
    assert list(once.scan()) == []


def test_switched_off_every_message_runs(stub, charge, ran):
    with disabled():
        for _ in range(2):
            stub.result(charge.send("a"))
    assert ran == ["a", "a"]


@pytest.mark.row("J5")
def test_keys_see_the_message(stub, ran):
    seen = []

    def key(job):
        seen.append(job)
        return by_payload(job)

    @stub.actor(once_key=key)
    def pay(order: str, amount: int = 40) -> None:
        ran.append(order)

    message = pay.send("a")
    stub.result(message)
    stub.result(pay.send(order="a", amount=40))
    assert [job.arguments for job in seen] == [{"order": "a", "amount": 40}] * 2
    (job, _) = seen
    assert (job.id, job.name, job.attempt) == (message.message_id, "pay", 1)
    assert (job.queue, job.redelivered) == ("default", None)
    assert ran == ["a"]


def test_another_fingerprint_fails_the_message(stub):
    @stub.actor(
        once_key=BY_ORDER,
        once_options={"fingerprint": lambda job: job.arguments["amount"]},
        throws=KeyReusedError,
    )
    def pay(order: str, amount: int) -> int:
        return amount

    assert stub.result(pay.send("a", 1)) == 1
    with pytest.raises(dramatiq.results.ResultFailure, match="KeyReusedError"):
        stub.result(pay.send("a", 2))


# What an actor tells Dramatiq


@pytest.mark.row("J12")
@pytest.mark.parametrize("told", [Retry(delay=1), RateLimitExceeded("full")])
def test_what_an_actor_tells_dramatiq_frees_its_key(stub, once, told):
    @stub.actor(once=True, min_backoff=1, max_backoff=1)
    def ask() -> object:
        attempt = current()
        attempt.note(seen=[*attempt.notes.get("seen", []), attempt.number])
        if attempt.number == 1:
            raise told
        return attempt.notes["seen"]

    assert stub.result(ask.send()) == [1, 2]
    (record,) = once.scan()
    assert not record.uncertain


# In progress elsewhere


@pytest.fixture
def elsewhere(once):
    """Somebody else is at the order, until the test says so."""
    begun, end = threading.Event(), threading.Event()

    def work():
        with once.options(scope="charge").attempt("a") as attempt:
            begun.set()
            assert end.wait(PATIENCE)
            attempt.complete("elsewhere")

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(PATIENCE)
    yield end
    end.set()
    thread.join()


def wait_until_put_back(stub, times):
    """The worker has put messages back so many times."""
    seen = threading.Semaphore(0)

    class Watch(dramatiq.Middleware):
        def after_enqueue(self, broker, message, delay):
            if delay is not None:
                seen.release()

    stub.broker.add_middleware(Watch())
    for _ in range(times):
        assert seen.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("options", [{"max_retries": 0}, {"retry_when": lambda *_: False}])
def test_waiting_is_no_retry(stub, elsewhere, options):
    @stub.actor(actor_name="charge", once_key=BY_ORDER, once_options=SOON, **options)
    def charge(order: str) -> str:
        raise AssertionError(order)

    message = charge.send("a")
    wait_until_put_back(stub, 3)
    elsewhere.set()
    assert stub.result(message) == "elsewhere"


def test_a_message_is_put_back_where_nobody_retries(bare, elsewhere):
    @bare.actor(actor_name="charge", once_key=BY_ORDER, once_options=SOON)
    def charge(order: str) -> str:
        raise AssertionError(order)

    message = charge.send("a")
    wait_until_put_back(bare, 3)
    elsewhere.set()
    assert bare.result(message) == "elsewhere"


def test_a_message_that_cannot_be_put_back_is_a_dead_letter(bare, elsewhere, monkeypatch):
    @bare.actor(actor_name="charge", once_key=BY_ORDER)
    def charge(order: str) -> str:
        raise AssertionError(order)

    def no_delays(message, *, delay=None):
        if delay is not None:
            raise ConnectionError
        return enqueue(message)

    enqueue = bare.broker.enqueue
    monkeypatch.setattr(bare.broker, "enqueue", no_delays)
    message = charge.send("a")
    with pytest.raises(dramatiq.results.ResultFailure, match="ConnectionError"):
        bare.result(message)


def test_a_message_that_lost_its_key_comes_again(stub, once, ran):
    @stub.actor(once_key=BY_ORDER, once_options=SOON, max_retries=0)
    def lose(order: str) -> int:
        ran.append(order)
        if len(ran) == 1:  # another attempt has taken it over, and dies
            once.forget(order, scope="lose", force=True)
            ask = Claim("lose", order, nonce="n", fingerprint=None, lease=1, ttl=10**9)
            once.store.claim(ask)
        return len(ran)

    assert stub.result(lose.send("a")) == 2


def test_a_message_whose_record_is_gone_does_not_run_again(stub, once, ran):
    @stub.actor(once_key=BY_ORDER, once_options=SOON, max_retries=0)
    def lose(order: str) -> int:
        ran.append(order)
        once.forget(order, scope="lose", force=True)
        return len(ran)

    with pytest.raises(dramatiq.results.ResultFailure, match="LeaseLostError"):
        stub.result(lose.send("a"))
    assert ran == ["a"]


def test_a_plain_call_that_is_in_progress_is_refused(charge, elsewhere):
    with pytest.raises(InProgressError):
        charge("a")


def test_who_listens_for_failures_can_tell_what_was_put_back(stub, elsewhere, ran):
    @stub.actor
    def listen(message: dict, error: dict) -> None:
        ran.append(error["type"])

    @stub.actor(actor_name="charge", once_key=BY_ORDER, once_options=SOON, on_failure="listen")
    def charge(order: str) -> str:
        raise AssertionError(order)

    message = charge.send("a")
    wait_until_put_back(stub, 1)
    elsewhere.set()
    stub.result(message)
    assert set(ran) == {PutBack.__name__}


# Results that are not kept


def test_a_duplicate_whose_result_was_not_kept_is_done(stub, caplog):
    @stub.actor(once_key=BY_ORDER, max_retries=0)
    def work(order: str):
        return (1, 2)  # it would come back as a list

    @stub.actor
    def follow(result: object) -> None:
        """Nothing."""

    assert stub.result(work.send("a")) == [1, 2]  # as JSON has it
    with caplog.at_level(logging.WARNING, "oncekey"):
        assert stub.result(work.send("a")) is None
    assert "returns None" in caplog.text
    steps = pipeline([work.message("a"), follow.message()], broker=stub.broker).run()
    with pytest.raises(dramatiq.results.ResultFailure, match="ResultNotKeptError"):
        stub.result(steps.messages[0])


# Enqueue


@pytest.mark.row("J9")
def test_a_duplicate_has_the_handle_of_the_first(stub, charge, ran):
    first = enqueue_once(charge, ("a",), key=BY_ORDER, delay=50)
    second = enqueue_once(charge.message("a", amount=1), key="a", broker=stub.broker)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert stub.result(first.handle) == stub.result(second.handle) == "a:40:1"
    assert ran == ["a"]
    stub.broker.join("default")
    assert not enqueue_once(charge, ("a",), key=BY_ORDER).duplicate


def test_without_retries_a_failure_is_the_end(bare):
    @bare.actor(once_key=BY_ORDER)
    def fail(order: str) -> None:
        raise ValueError(order)

    for _ in range(2):
        assert not enqueue_once(fail, ("a",), key=BY_ORDER).duplicate
        bare.broker.join("default")


def test_a_message_that_is_skipped_is_at_its_end(stub, charge):
    first = enqueue_once(
        charge.message_with_options(args=("a",), max_age=1), key="a", delay=50, broker=stub.broker
    )  # fmt: skip - one call
    stub.broker.join("default")
    assert not enqueue_once(charge, ("a",), key="a").duplicate
    assert not first.duplicate


@pytest.mark.row("J8")
def test_what_cannot_be_enqueued_once_is_refused(stub, charge):
    @stub.actor
    def silent() -> None:
        """Nothing."""

    (member, _) = pipeline([charge.message("a"), silent.message()], broker=stub.broker).messages
    for work, key, says in (
        (silent.message(), "a", "is not protected"),
        (charge.message("a"), by_task_id, "made of arguments"),
        (charge.message("a"), 7, "needs a key"),
        (member, "a", "part of a pipeline"),
        ("charge", "a", "an actor or a message"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            enqueue_once(work, key=key, broker=stub.broker)


# Mistakes


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"once_key": "order"}, "function that makes its key"),
        ({"once_options": {"ttl": "soon"}}, "ttl"),
        ({"once_options": {"colour": "red"}}, "colour"),
    ],
)
def test_a_mistake_shows_where_the_actor_is_declared(stub, given, says):
    with pytest.raises(ConfigurationError, match=says):
        stub.actor(actor_name="wrong", **given)(lambda order: None)
    assert "wrong" not in stub.broker.actors


@pytest.mark.row("J8")
@pytest.mark.parametrize("given", [{"once": None}, {"key": "order"}, {"ttl": "soon"}])
def test_a_mistake_shows_where_the_middleware_is_made(once, given):
    with pytest.raises(ConfigurationError):
        OnceMiddleware(**{"once": once, **given})


def test_a_message_that_is_not_for_this_call_is_nobody_elses(stub, charge, ran):
    @stub.actor(once=True)
    def outer(order: str) -> object:
        return charge(order)

    assert stub.result(outer.send("a")) == "a:40:1"
