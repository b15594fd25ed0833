"""What happened is told once, to everybody, and written to the log in fixed words."""

import logging
from typing import get_args

import pytest
from msgspec.structs import replace

from oncekey import Once
from oncekey.errors import ConfigurationError, StoreError
from oncekey.observe import Event, Name, Observers
from oncekey.observe.log import LogObserver
from oncekey.policy import Policy
from oncekey.stores import MemoryStore


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "oncekey")
    return caplog


# Observers


def test_everybody_hears_of_it(calling):
    one = []
    other = []
    call = calling(label="charge")
    Observers([one.append, other.append]).tell("new", call, 2, 0.5, "why")
    assert one == other
    assert one == [
        Event(
            name="new",
            scope="billing",
            key="charge:42",
            label="charge",
            surface="function",
            attempt=2,
            seconds=0.5,
            detail="why",
            count=1,
        )
    ]


def test_where_a_call_came_in_and_what_it_refers_to_is_told(calling):
    heard = []
    call = calling(surface="job", reference="task-7", trace="mine")
    observers = Observers([heard.append])
    observers.tell("completed", call, 1, size=12)
    observers.tell("duplicate", call, 1, reference="task-1")
    done, again = heard
    assert (done.surface, done.reference, done.trace, done.size) == ("job", "task-7", "mine", 12)
    assert again.reference == "task-1"


def test_an_event_can_be_handed_on_as_it_is():
    heard = []
    event = Event(name="purged", count=7)
    Observers(iter([heard.append])).hand(event)
    assert heard == [event]


def test_with_nobody_to_hear_nothing_is_made():
    Observers([]).tell("new", None)  # the call is not even looked at


def test_an_observer_that_fails_stops_neither_the_call_nor_the_others(calling, log):
    heard = []

    def broken(event):
        raise KeyError(event.name)

    Observers([broken, heard.append]).tell("duplicate", calling())
    assert [event.name for event in heard] == ["duplicate"]
    [entry] = log.records
    assert (entry.name, entry.levelname) == ("oncekey", "ERROR")
    assert entry.getMessage() == "an observer failed on duplicate"
    assert entry.exc_info[0] is KeyError


def test_an_observer_that_fails_does_not_stop_a_call():
    def broken(event):
        raise KeyError(event.name)

    once = Once(MemoryStore(), observers=[broken])
    assert once.run("k", lambda: 7) == 7
    assert once.run("k", lambda: 8) == 7


class Choosy:
    """Wants some events, and takes whatever it gets."""

    def __init__(self, *wanted):
        self.wanted = wanted
        self.heard = []

    def wants(self, name):
        return name in self.wanted

    def __call__(self, event):
        self.heard.append(event.name)


def test_an_event_that_nobody_wants_is_not_made(calling):
    one, other = Choosy(), Choosy("held")
    observers = Observers([one, other])
    observers.tell("new", None)  # the call is not even looked at
    assert (one.heard, other.heard) == ([], [])
    observers.tell("held", calling())
    assert other.heard == ["held"]


def test_an_observer_that_cannot_say_what_it_wants_does_not_stop_the_call(calling, log):
    class Broken(Choosy):
        def wants(self, name):
            raise KeyError(name)

    good = Choosy("new")
    Observers([Broken(), good]).tell("new", calling())
    assert good.heard == ["new"]


def test_the_log_wants_what_its_logger_writes(caplog):
    caplog.set_level(logging.WARNING, "oncekey")
    wanted = {name for name in LINES if LogObserver().wants(name)}
    assert wanted == {name for name, (level, _) in LINES.items() if level >= logging.WARNING}


class Tracer:
    """Hangs something on calls."""

    def __init__(self, broken=False):
        self.broken = broken

    def entering(self, call):
        if self.broken:
            raise KeyError(call.key)
        return replace(call, trace=self)

    def __call__(self, event):
        """It hears nothing."""


def test_one_observer_may_hang_something_on_a_call(calling):
    call = calling()
    assert Observers([]).entering(call) is call
    tracer = Tracer()
    assert Observers([lambda event: None, tracer]).entering(call).trace is tracer
    with pytest.raises(ConfigurationError, match="two observers trace calls"):
        Observers([tracer, Tracer()])


def test_an_observer_that_fails_before_a_claim_does_not_stop_it(calling, log):
    call = calling()
    assert Observers([Tracer(broken=True)]).entering(call) is call
    assert log.records[0].getMessage() == "an observer failed before a claim"


@pytest.mark.parametrize("wrong", ["log", 7, None])
def test_an_observer_must_be_callable(wrong):
    with pytest.raises(ConfigurationError) as caught:
        Observers([wrong])
    words = f"an observer must be a callable that takes one event, not {wrong!r}"
    assert str(caught.value) == words


# The log

DEBUG, WARNING, ERROR = logging.DEBUG, logging.WARNING, logging.ERROR
LINES: dict[Name, tuple[int, str]] = {
    "resolved": (logging.INFO, "outcome resolved by hand"),
    "forgotten": (logging.INFO, "record forgotten by hand"),
    "new": (DEBUG, "task claimed"),
    "taken_over": (WARNING, "task taken over after an uncertain end"),
    "duplicate": (DEBUG, "duplicate task skipped"),
    "waiting": (DEBUG, "duplicate task waits for the first"),
    "busy": (DEBUG, "duplicate task refused, the first is in progress"),
    "reused": (WARNING, "key reused with other arguments, refused"),
    "held": (WARNING, "outcome unknown, task held until it is resolved"),
    "refused": (ERROR, "idempotency check failed, not processing"),
    "unprotected": (WARNING, "idempotency check failed, processing anyway"),
    "completed": (DEBUG, "task completed"),
    "failed": (DEBUG, "task failed, failure kept"),
    "released": (DEBUG, "task failed, key released"),
    "lost": (WARNING, "lease lost, another attempt owns the key"),
    "not_kept": (WARNING, "task completed, result not kept"),
    "not_recorded": (ERROR, "task completed, but not recorded yet"),
    "never_recorded": (ERROR, "task completed, but never recorded"),
    "renewal_failed": (WARNING, "lease not renewed, trying again"),
    "purged": (DEBUG, "expired records purged"),
    "breaker_opened": (WARNING, "store in trouble, nothing new is claimed until it is over"),
    "breaker_closed": (WARNING, "store works again"),
}


def test_every_event_has_a_line():
    assert sorted(LINES) == sorted(get_args(Name))


@pytest.mark.parametrize("name", sorted(LINES))
def test_each_event_is_written_at_its_level_in_its_words(name, log):
    level, words = LINES[name]
    event = Event(name=name, scope="billing", key="charge:42", label="charge", attempt=2)
    LogObserver()(event)
    [entry] = log.records
    assert (entry.name, entry.levelno) == ("oncekey", level)
    about = "(1)" if name == "purged" else "[billing/charge:42]"
    assert entry.getMessage() == f"{words} {about}"
    assert (entry.idempotency_key, entry.task_type) == ("charge:42", "charge")
    assert (entry.idempotency_scope, entry.attempt) == ("billing", 2)


def test_the_reason_follows_the_key(log):
    LogObserver()(Event(name="refused", key="k", detail="no way through"))
    words = "idempotency check failed, not processing [k]: no way through"
    assert log.records[0].getMessage() == words


def test_an_event_without_a_key_says_how_many(log):
    LogObserver(redact=lambda _: "***")(Event(name="purged", count=12))
    LogObserver()(Event(name="breaker_opened", detail="connection refused"))
    assert [entry.getMessage() for entry in log.records] == [
        "expired records purged (12)",
        "store in trouble, nothing new is claimed until it is over: connection refused",
    ]
    assert {entry.idempotency_key for entry in log.records} == {""}


def test_a_level_that_nobody_wants_costs_nothing(caplog):
    caplog.set_level(logging.INFO, "oncekey")
    redacted = []

    def redact(key):
        redacted.append(key)
        return "***"

    LogObserver(redact=redact)(Event(name="duplicate", key="k"))
    assert not caplog.records
    assert not redacted


def test_another_logger_can_be_given(caplog):
    caplog.set_level(logging.DEBUG, "shop")
    LogObserver(logging.getLogger("shop"))(Event(name="new", key="k"))
    assert [entry.name for entry in caplog.records] == ["shop"]


def test_a_redacted_key_stands_nowhere_in_the_entry(log):
    observer = LogObserver(redact=lambda key: key[:3] + "***")
    observer(Event(name="duplicate", key="ann@example.org", label="mail"))
    [entry] = log.records
    assert entry.getMessage() == "duplicate task skipped [ann***]"
    assert entry.idempotency_key == "ann***"
    assert "example.org" not in str(vars(entry))


def test_a_redacted_key_does_not_come_in_through_the_reason_of_a_refusal(log):
    store, policy = MemoryStore(), Policy(wait=0, on_crash="hold")
    once, elsewhere = (
        Once(store, observers=[LogObserver(redact=lambda _: "***")], policy=policy)
        for _ in range(2)
    )

    def argue(n):
        raise TimeoutError(n)

    once.run("ann@example.org", lambda n: n, 1)
    with pytest.raises(Exception, match="other arguments"):
        once.run("ann@example.org", lambda n: n, 2)
    with pytest.raises(TimeoutError):
        once.run("bob@example.org", argue, 1)
    with pytest.raises(Exception, match="held"):
        once.run("bob@example.org", argue, 1)
    with once.attempt("eve@example.org"), pytest.raises(Exception, match="in progress"):
        elsewhere.run("eve@example.org", argue, 1)
    assert log.records
    assert "example.org" not in log.text


# The rows about logging, seen through the front door


class Down(MemoryStore):
    def claim(self, ask, /):
        msg = "no way through"
        raise StoreError(msg, happened=False)


@pytest.mark.row("J10")
def test_a_duplicate_is_logged_with_its_key_and_task(log):
    once = Once("memory://")

    @once("charge:{n}", label="charge")
    def charge(n):
        return n

    assert [charge(7), charge(7)] == [7, 7]
    skipped = [entry for entry in log.records if "skipped" in entry.getMessage()]
    assert len(skipped) == 1
    assert (skipped[0].name, skipped[0].levelno) == ("oncekey", logging.DEBUG)
    assert skipped[0].getMessage().startswith("duplicate task skipped")
    assert (skipped[0].idempotency_key, skipped[0].task_type) == ("charge:7", "charge")


def test_open_runs_anyway_and_warns(log):
    once = Once(Down(), policy=Policy(fail_mode="open")).options(label="charge")
    assert once.run("k", lambda: 7) == 7
    [entry] = [entry for entry in log.records if entry.levelno >= logging.WARNING]
    assert entry.levelno == logging.WARNING
    assert entry.getMessage().startswith("idempotency check failed, processing anyway")
    assert (entry.idempotency_key, entry.task_type) == ("k", "charge")


def test_closed_refuses_and_logs_an_error(log):
    once = Once(Down(), policy=Policy(fail_mode="closed"))
    with pytest.raises(StoreError):
        once.run("k", lambda: 7)
    [entry] = [entry for entry in log.records if entry.levelno >= logging.WARNING]
    assert entry.levelno == logging.ERROR
    assert entry.getMessage().startswith("idempotency check failed")


def test_who_comes_later_hears_from_then_on(calling):
    first, second = [], []
    observers = Observers([first.append])
    observers.tell("new", calling())
    observers.add(second.append)
    observers.tell("completed", calling())
    assert [event.name for event in first] == ["new", "completed"]
    assert [event.name for event in second] == ["completed"]
    assert observers.everybody == [first.append, second.append]


def test_a_line_has_scope_and_key_as_search_and_commands_take_them(log):
    LogObserver()(Event(name="held", scope="billing", key="charge/1043"))
    (entry,) = log.records
    assert entry.getMessage().endswith("[billing/charge%2F1043]")
    assert entry.idempotency_record == "billing/charge%2F1043"
    assert (entry.idempotency_scope, entry.idempotency_key) == ("billing", "charge/1043")
