"""Handlers of the user that fail, as the standard one does when `sys.stderr` was closed."""

import logging

import pytest

from oncekey import Once
from oncekey.engine.keeper import Chore, Keeper
from oncekey.observe.logger import logger
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore
from tests.patience import until


class Failing(logging.Handler):
    def __init__(self):
        super().__init__()
        self.asked = 0

    def handle(self, record):
        self.asked += 1
        raise ValueError("I/O operation on closed file.")


@pytest.fixture
def failing():
    handler, log = Failing(), logging.getLogger("oncekey")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_a_call_is_answered_whatever_becomes_of_its_log_line(failing):
    once = Once("memory://")
    ran = []

    def effect():
        ran.append(1)
        return object()  # which cannot be kept, as a WARNING says

    assert type(once.run("k", effect)) is object
    assert (ran, failing.asked > 0) == ([1], True)


def test_a_call_that_may_fail_open_runs_although_nobody_can_be_told(failing):
    store = FaultyStore(MemoryStore())
    store.cut_off("claim", times=100)
    assert Once(store, fail_mode="open").run("k", lambda: 5) == 5
    assert failing.asked
    store.heal()


def test_the_keeper_goes_on_after_a_chore_that_failed(failing):
    done = []

    class Broken(Chore):
        def do(self):
            raise KeyError

    class Good(Chore):
        def do(self):
            done.append(1)

    keeper = Keeper()
    keeper.take_up(Broken(), 0.0)
    until(lambda: failing.asked)
    keeper.take_up(Good(), 0.0)
    until(lambda: done)


def test_a_line_names_the_code_that_wrote_it(caplog):
    logger.warning("%s of %d", "one", 2, extra={"task_type": "t"})
    [record] = caplog.records
    assert (record.getMessage(), record.task_type) == ("one of 2", "t")
    assert record.funcName == "test_a_line_names_the_code_that_wrote_it"
