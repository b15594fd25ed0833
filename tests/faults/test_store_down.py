"""The server is gone: closed calls are refused, open ones run, and the log says which."""

import logging
from contextlib import closing
from types import SimpleNamespace

import pytest

from oncekey import Once, Policy, StoreError
from tests.faults.colours import COLOURS

NOTHING = SimpleNamespace(status=None)


class Gone:
    """A server that was there and is not any more, until it is back."""

    def __init__(self, url, server):
        self.url, self.back = url, server.start


SHARED = pytest.mark.xdist_group("store down")  # a server that starts slowly


@pytest.fixture(params=["redis", pytest.param("postgres", marks=SHARED)])
def gone(request):
    if request.param == "redis":
        server = request.getfixturevalue("another_redis")()
        server.kill()
        yield Gone(server.url, server)
        return
    server = request.getfixturevalue("breakable_postgres")
    url = server.new_database()
    server.stop()
    yield Gone(url, server)
    if server._process is None:
        server.start()


@pytest.fixture(params=COLOURS)
def colour(request):
    return request.param


def told(caplog):
    return [(record.levelno, record.message.partition(" [")[0]) for record in caplog.records]


def test_open_it_runs_with_a_warning_and_is_recorded_later(gone, colour, caplog, until):
    """What is said of a single use counts more than what is said of the store."""
    caller = colour(Once(gone.url, policy=Policy(fail_mode="closed")))
    assert caller.run("job", lambda: "done", fail_mode="open") == "done"
    assert told(caplog) == [(logging.WARNING, "idempotency check failed, processing anyway")]
    assert caplog.records[0].idempotency_key == "job"
    gone.back()
    until(lambda: (caller.once.get("job") or NOTHING).status == "completed")
    assert caller.run("job", lambda: pytest.fail("it ran")) == "done"
    caller.close()


def test_closed_it_is_refused_with_an_error(gone, colour, caplog):
    caller = colour(Once(gone.url, policy=Policy(fail_mode="open")))
    with pytest.raises(StoreError, match="cannot be reached") as refusal:
        caller.run("job", lambda: pytest.fail("it ran"), fail_mode="closed")
    assert (refusal.value.happened, refusal.value.unreachable) == (False, True)
    assert told(caplog) == [(logging.ERROR, "idempotency check failed, not processing")]
    caller.close()


def test_an_open_check_answers_new_and_a_closed_one_raises(gone):
    for mode in ("open", "closed"):
        with closing(Once(gone.url, policy=Policy(fail_mode=mode))) as once:
            if mode == "open":
                assert once.check("job", "1h") is True
            else:
                with pytest.raises(StoreError):
                    once.check("job", "1h")


def test_after_three_misses_nobody_knocks_but_the_keeper(gone, colour):
    caller = colour(Once(gone.url))
    for _ in range(3):
        with pytest.raises(StoreError, match="cannot be reached"):
            caller.run("job", lambda: pytest.fail("it ran"))
    with pytest.raises(StoreError, match="was out of reach a moment ago"):
        caller.run("job", lambda: pytest.fail("it ran"))
    caller.close()


def test_errors_of_the_code_do_not_open_the_breaker(empty_redis, colour):
    def out_of_reach():
        raise StoreError("somebody else's", unreachable=True)

    caller = colour(Once(empty_redis.url))
    for _ in range(5):
        with pytest.raises(StoreError, match="somebody else's"):
            caller.run("job", out_of_reach)
    assert caller.run("job", lambda: "done") == "done"
    caller.close()
