"""Jobs of Taskiq that cannot run now: they wait, and go back into their queue."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from taskiq import (
    TaskiqMessage,
)

from oncekey import InProgressError, LeaseLostError, NotRecordedError, Once, ResultNotKeptError
from oncekey.engine import engine, engine_async
from oncekey.jobs.taskiq import TaskiqDelivery, once_task
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore
from tests.jobs.taskiq_fixtures import (
    BY_ORDER,
    Elsewhere,
    Order,
    broken,
    broker,
    coloured,
    kicked,
    once,
    ran,
    result,
)
from tests.patience import PATIENCE, until_async

__all__ = ["broker", "coloured", "kicked", "once", "ran"]


@pytest.fixture
def patient(broker, once, ran, coloured):
    """A job that has no retry to spend."""

    def work(order: str, amount: int = 40) -> str:
        ran.append(order)
        return "ours"

    protected = once_task(once, BY_ORDER, retry_after="10ms")(coloured(work))
    return broker.register_task(protected, "patient", retry_on_error=True, max_retries=0)


async def test_a_job_that_another_is_at_is_put_back_with_id_and_retries(patient, once, kicked, ran):
    with Elsewhere(once, "patient", "a"):
        sent = await patient.kicker().with_labels(mine="yes").kiq("a", amount=7)
        await until_async(lambda: len(kicked) > 3)
    assert await result(sent) == "theirs"
    assert ran == []
    assert {message.task_id for message in kicked} == {sent.task_id}
    last = patient.broker.formatter.loads(kicked[-1].message)
    assert (last.args, last.kwargs) == (["a"], {"amount": 7})
    assert last.labels["mine"] == "yes"
    assert "_retries" not in last.labels
    assert last.labels["X-Taskiq-requeue"] == str(len(kicked) - 1)


@pytest.mark.parametrize("why", ["model", "pipeline", "broker"])
async def test_a_job_that_cannot_be_put_back_waits_where_it_is(broker, once, kicked, why, caplog):
    asked = []

    def key(job) -> str:
        asked.append(job.id)
        return "a"

    @broker.task("model", retry_on_error=True)
    @once_task(once, key, retry_after="10ms")
    def work(order: Order) -> str:
        return "ours"

    order: Any = Order("a") if why == "model" else {"number": "a"}
    labels: dict[str, Any] = {"_pipe_current_step": 0} if why == "pipeline" else {}
    if why != "model":
        work.original_func.__annotations__.clear()
    with Elsewhere(once, "model", "a"):
        sent = await work.kicker().with_labels(**labels).kiq(order)
        await until_async(lambda: len(kicked) == 1)
        broker.kick = broken if why == "broker" else broker.kick
        await until_async(lambda: len(asked) > 3)
    assert await result(sent) == "theirs"
    assert len(kicked) == 1 or why == "broker"
    assert ("was not put back" in caplog.text) is (why == "broker")


async def test_a_job_whose_record_is_late_is_done(broker, ran, coloured, monkeypatch):
    monkeypatch.setattr(engine, "SETTLE_PATIENCE", 0.05)
    monkeypatch.setattr(engine_async, "SETTLE_PATIENCE", 0.05)
    store = FaultyStore(MemoryStore())
    once = Once(store)

    def work(order: str, amount: int = 40) -> str:
        ran.append(order)
        store.cut_off("settle", 1000)
        return f"done {len(ran)}"

    protected = once_task(once, BY_ORDER, retry_after="10ms", fail_mode="closed")(coloured(work))
    task = broker.register_task(protected, "late")
    assert await result(await task.kiq("a")) == "done 1"
    sent = await task.kiq("a")  # it waits for the record
    store.heal()
    assert await result(sent) == "done 1"
    assert ran == ["a"]
    await once.aclose()


@pytest.mark.parametrize("other", ["done", "running", "gone"])
async def test_a_job_that_was_taken_over_hands_back_what_the_other_returns(
    broker, ran, coloured, kicked, other
):
    store = MemoryStore()
    once, elsewhere = Once(store), Once(store)  # as in two processes
    holder = Elsewhere(elsewhere, "lost", "a")

    def work(order: str, amount: int = 40) -> str:
        ran.append(order)
        with ThreadPoolExecutor(1) as pool:  # where this attempt is nobody's
            pool.submit(elsewhere.forget, order, scope="lost", force=True).result()
        if other != "gone":
            holder.__enter__()
        if other == "done":
            holder.leave()
        return "ours"

    protected = once_task(once, BY_ORDER, retry_after="10ms")(coloured(work))
    sent = await broker.register_task(protected, "lost").kiq("a")
    if other == "gone":
        with pytest.raises(LeaseLostError):
            await result(sent)
    else:
        if other == "running":
            await until_async(lambda: len(kicked) > 1)
            holder.leave()
        assert await result(sent) == "theirs"
    assert ran == ["a"]
    await once.aclose()
    await elsewhere.aclose()


@pytest.mark.parametrize(
    "error",
    [
        InProgressError("elsewhere", key="a", scope="other", retry_after=1),
        LeaseLostError("lost", key="a", scope="other"),
        NotRecordedError("late", key="a", scope="other", result="theirs"),
        ResultNotKeptError("gone", key="a", scope="other"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_of_a_call_inside_is_the_jobs_own(broker, once, coloured, ran, error):
    def call_inside(order: str, amount: int = 40) -> str:
        ran.append(order)
        raise error

    task = broker.register_task(once_task(once, BY_ORDER)(coloured(call_inside)), "inside")
    with pytest.raises(type(error)):
        await result(await task.kiq("a"))
    assert ran == ["a"]


async def test_a_time_limit_does_not_free_the_key_of_a_thread_that_still_runs(
    broker, once, ran, kicked
):
    gate = threading.Event()

    @broker.task(timeout=0.05, retry_on_error=True, types_of_exceptions=[TimeoutError])
    @once_task(once, retry_after="10ms")
    def work() -> str:
        ran.append("work")
        assert gate.wait(PATIENCE)
        return "done"

    sent = await work.kiq()
    await until_async(lambda: len(kicked) > 2)  # the retry, which is put back
    gate.set()
    assert await result(sent) == "done"
    assert ran == ["work"]


@pytest.mark.parametrize(
    ("labels", "idle", "pauses"),
    [({}, None, 5), ({"timeout": 3}, None, 1), ({}, 600, 0.2), ({"timeout": 3}, 600, 0.2)],
)
async def test_it_waits_far_less_than_its_time_limit_and_the_redelivery(
    broker, labels, idle, pauses
):
    broker.idle_timeout = idle
    message = TaskiqMessage(task_id="1", task_name="x", labels=labels, args=[], kwargs={})
    assert TaskiqDelivery(message, broker).pause(5) == pytest.approx(pauses)


async def test_a_delivery_in_another_process_is_the_message_alone(broker):
    message = TaskiqMessage(task_id="1", task_name="x", labels={}, args=[], kwargs={})
    there = pickle.loads(pickle.dumps(TaskiqDelivery(message, broker)))  # noqa: S301 - as a pool does
    assert there.job({}).id == "1"
    there.put_back(ValueError())  # it cannot, and so the job waits there
    assert there.answer(ResultNotKeptError("gone", key="k")) is None
