"""A process that forks in the middle of an attempt: the attempt stays with the parent."""

import asyncio
import os
import sys

import pytest

from oncekey import ConfigurationError, Once, current, current_async
from oncekey.engine.run_base import leave_to_parent


def in_child(child):
    """Fork, call `child` there, and return what is printed there. The child ends in any case."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = child()
        except BaseException as error:  # noqa: BLE001 - the parent is told, and the child ends
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, str(said).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        words = told.read()
    os.waitpid(pid, 0)
    return words


@pytest.fixture
def shop(tmp_path):
    return Once(f"sqlite:///{tmp_path / 'shop.db'}", wait=0)


def returns():
    return "the child's"


def raises():
    raise ValueError


@pytest.mark.parametrize("leave", [returns, raises, sys.exit])
def test_a_forked_child_does_not_end_the_attempt_of_its_parent(shop, leave):
    """A daemon that is started inside of a protected function leaves the function, too."""
    parent, children = os.getpid(), []

    @shop("work:{number}")
    def work(number):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            children.append(writing)
            return leave()
        os.close(writing)
        with os.fdopen(reading) as told:
            children.append(told.read())  # until the child has ended
        os.waitpid(pid, 0)
        children.append(work.record(number))
        return "the parent's"

    try:
        value = work(1)
    except BaseException as error:
        if os.getpid() == parent:
            raise
        os.write(children[0], type(error).__name__.encode())
    finally:
        if os.getpid() != parent:
            os._exit(0)
    told, record = children
    assert value == "the parent's"
    assert told == {returns: "ConfigurationError", raises: "ValueError"}.get(leave, "SystemExit")
    assert record.status == "running"
    assert work(1) == "the parent's"


def test_a_forked_child_is_told_that_the_attempt_is_not_its_own(shop):
    with shop.attempt("import") as attempt:
        told = in_child(lambda: attempt.complete("the child's"))
        assert "forked child of the process that runs 'import'" in told
        assert "only that process may end it" in told
        assert "ConfigurationError: the result was used" in in_child(lambda: attempt.result)
        assert in_child(current).startswith("ConfigurationError: no attempt is running here")
        attempt.complete("the parent's")
    assert shop.run("import", lambda: "ran again") == "the parent's"


def test_all_attempts_that_surround_a_fork_are_left_to_the_parent(once):
    calm = once.options(heartbeat=False)
    with calm.attempt("outer") as outer, calm.attempt("inner") as inner:
        leave_to_parent()  # what a fork does first in the child
        with pytest.raises(ConfigurationError, match="had ended"):
            inner.note(x=1)
        with pytest.raises(ConfigurationError, match="had ended"):
            outer.note(x=1)
    assert {once.get("outer").status, once.get("inner").status} == {"running"}


def test_the_attempt_of_a_coroutine_stays_with_the_parent_too(shop):
    @shop("job:{number}")
    async def job(number):
        attempt = current_async()
        return in_child(lambda: attempt.complete("the child's").send(None))

    assert "forked child" in asyncio.run(job(1))
    assert asyncio.run(job.record(1)).status == "completed"
