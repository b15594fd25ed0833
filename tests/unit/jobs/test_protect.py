"""What every adapter stands on."""

import pytest

from oncekey import ConfigurationError, KeyReusedError, Once, current, current_async
from oncekey.jobs import Job, by_fields
from oncekey.jobs.protect import JobGuard


class RetryLaterError(Exception):
    """By which a task tells its queue to try again."""


class TooSlowError(Exception):
    """By which a queue ends a task."""


@pytest.fixture
def once():
    return Once("memory://", observers=())


def task(order, retry=False, slow=False):
    if retry:
        raise RetryLaterError
    if slow:
        raise TooSlowError
    current().note(order=order)
    return order * 2


async def task_async(order, retry=False, slow=False):
    if retry:
        raise RetryLaterError
    if slow:
        raise TooSlowError
    await current_async().note(order=order)
    return order * 2


@pytest.fixture(params=["blocking", "coroutine"])
def run(request, once):
    """Runs a job through a guard, in either colour; always to be awaited."""

    async def do(job, *args, **options):
        function = task if request.param == "blocking" else task_async
        fixed = {"name": "ship", "control": (RetryLaterError,), "cut_off": (TooSlowError,)}
        guard = JobGuard(once, function, **(fixed | options))
        if request.param == "blocking":
            return guard.run(job, function, args, {})
        return await guard.run_async(job, function, args, {})

    return do


async def test_a_job_runs_once_by_its_id(run, once):
    first, second = [await run(Job(id="j-1"), 21) for _ in range(2)]
    assert (first.value, first.duplicate) == (42, False)
    assert (second.value, second.duplicate) == (42, True)
    record = once.get("j-1", scope="ship")
    assert (record.label, record.reference, record.notes) == ("ship", "j-1", {"order": 21})


async def test_what_tells_the_queue_what_to_do_frees_the_key_and_is_never_kept(run, once):
    with pytest.raises(RetryLaterError):
        await run(Job(id="j-1"), 1, True, on_error="keep")
    record = once.get("j-1", scope="ship")
    assert (record.status, record.uncertain) == ("released", False)
    assert (await run(Job(id="j-1"), 1)).value == 2


async def test_what_cuts_a_task_off_is_uncertain(run, once):
    with pytest.raises(TooSlowError):
        await run(Job(id="j-1"), 1, False, True)
    assert once.get("j-1", scope="ship").uncertain


async def test_an_empty_key_runs_unprotected(run, once):
    for _ in range(2):
        assert not (await run(Job(), 1, key=lambda _job: "")).duplicate
    assert list(once.scan()) == []


async def test_a_fingerprint_tells_other_jobs_apart(run):
    options = {"key": lambda _job: "k", "fingerprint": by_fields("order")}
    await run(Job(arguments={"order": 1}), 1, **options)
    with pytest.raises(KeyReusedError):
        await run(Job(arguments={"order": 2}), 2, **options)


def test_a_guard_without_control_exceptions_calls_the_function_itself(once):
    guard = JobGuard(once, task, name="ship", scope=None)
    assert guard.run(Job(id="j"), task, (1,), {}).value == 2
    assert once.get("j") is not None


async def test_the_same_for_coroutines(once):
    guard = JobGuard(once, task_async, name="ship")
    assert (await guard.run_async(Job(id="j"), task_async, (1,), {})).value == 2


async def test_a_coroutine_guard_takes_blocking_functions(once):
    guard = JobGuard(once, len, name="ship", control=(RetryLaterError,))
    assert (await guard.run_async(Job(id="j"), len, ("abc",), {})).value == 3


def test_arguments_have_names(once):
    guard = JobGuard(once, task, name="ship")
    assert guard.arguments((1,), {"slow": True}) == {"order": 1, "retry": False, "slow": True}


@pytest.mark.row("J8")
def test_wrong_arguments_fail_at_once(once):
    with pytest.raises(ConfigurationError, match="fingerprint"):
        JobGuard(once, task, name="ship", fingerprint="order")
    with pytest.raises(ConfigurationError, match="needs a Once"):
        JobGuard(None, task, name="ship")
    with pytest.raises(ConfigurationError, match="cannot be called"):
        JobGuard(once, None, name="ship")
