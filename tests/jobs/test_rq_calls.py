"""Functions for RQ without RQ: plain calls, and mistakes at decoration."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from rq import Retry

from oncekey import ConfigurationError, InProgressError, Once, current
from oncekey.jobs import by_fields, by_payload
from oncekey.jobs.rq import once_job
from oncekey.testing import disabled

BY_ORDER = by_fields("order")


@pytest.fixture
def once():
    once = Once("memory://")
    yield once
    once.close()


@pytest.fixture
def ran():
    return []


def test_plain_calls_with_one_key_run_once(once, ran):
    @once_job(once, BY_ORDER, name="charge")
    def charge(order: str, amount: int = 40) -> str:
        ran.append(order)
        return f"{order}:{amount}"

    assert charge("a") == charge("a", amount=41) == "a:40"
    assert charge("b") == "b:40"
    assert ran == ["a", "b"]
    assert once.get("a", scope="charge").label == "charge"
    assert charge.__name__ == "charge"


async def test_coroutines_with_one_key_run_once(once, ran):
    @once_job(once, BY_ORDER)
    async def charge(order: str) -> int:
        ran.append(order)
        return len(ran)

    assert (await charge("a"), await charge("a"), await charge("b")) == (1, 1, 2)


async def test_without_an_id_a_plain_call_runs_unprotected(once, ran):
    @once_job(once)
    def charge(order: str) -> None:
        ran.append(order)

    @once_job(once)
    async def later(order: str) -> None:
        ran.append(order)

    charge("a")
    charge("a")
    await later("a")
    assert ran == ["a", "a", "a"]
    assert list(once.scan()) == []


def test_switched_off_every_call_runs(once, ran):
    @once_job(once, by_payload)
    def charge(order: str) -> None:
        ran.append(order)

    with disabled():
        charge("a")
        charge("a")
    assert ran == ["a", "a"]


@pytest.mark.row("J12")
async def test_a_returned_retry_is_handed_on_and_not_kept(once):
    @once_job(once, BY_ORDER)
    def charge(order: str):
        return Retry(max=3) if current().number == 1 else "done"

    @once_job(once, BY_ORDER)
    async def later(order: str):
        return Retry(max=3)

    assert isinstance(charge("a"), Retry)
    assert (charge("a"), charge("a")) == ("done", "done")
    assert isinstance(await later("a"), Retry)
    assert {record.status for record in once.scan()} == {"completed", "released"}


def test_a_plain_call_that_is_in_progress_is_refused(once):
    @once_job(once, BY_ORDER, name="charge")
    def charge(order: str) -> None:
        """Nothing."""

    with once.options(scope="charge").attempt("a"), ThreadPoolExecutor(1) as elsewhere:
        refused = elsewhere.submit(charge, "a").exception()
    assert isinstance(refused, InProgressError)


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"once": None}, "needs a Once"),
        ({"key": "order"}, "function that makes its key"),
        ({"ttl": "soon"}, "ttl"),
        ({"fingerprint": "order"}, "fingerprint"),
    ],
)
def test_a_mistake_shows_at_decoration(once, given, says):
    def charge() -> None:
        """Nothing."""

    with pytest.raises(ConfigurationError, match=says):
        once_job(**{"once": once, **given})(charge)


@pytest.mark.row("J8")
def test_what_cannot_be_a_job_shows_at_decoration(once):
    for wrong, says in ((7, "cannot be called"), (dict, "is a class"), (lambda: None, "lambda")):
        with pytest.raises(ConfigurationError, match=says):
            once_job(once)(wrong)
