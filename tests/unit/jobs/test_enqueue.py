"""Jobs that are not even queued twice."""

import logging

import pytest

from oncekey import ConfigurationError, InProgressError, Once, StoreError
from oncekey.jobs import Enqueued, enqueue_once, enqueue_once_async
from oncekey.jobs.enqueue import (
    HEADER,
    Tag,
    checked_until,
    enqueue_known,
    enqueue_known_async,
    free_tagged,
    free_tagged_async,
    read_tag,
)
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.without_fast_paths.sitecustomize import on as without_fast_paths


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return FaultyStore(MemoryStore(clock=clock))


@pytest.fixture
def once(store):
    return Once(store, observers=(), cache=not without_fast_paths())


class Queue:
    """A queue that keeps what it is given."""

    def __init__(self):
        self.jobs = []
        self.fails = None

    def publish(self, headers):
        if self.fails is not None:
            raise self.fails
        self.jobs.append(dict(headers))
        return f"job-{len(self.jobs)}"

    async def publish_async(self, headers):
        return self.publish(headers)


@pytest.fixture
def queue():
    return Queue()


@pytest.fixture(params=["blocking", "coroutine"])
def enqueue(request, once, queue):
    """Puts a job into the queue, in either colour; always to be awaited."""

    async def put(key="order:1", **options):
        if request.param == "blocking":
            return enqueue_once(once, key, queue.publish, **options)
        return await enqueue_once_async(once, key, queue.publish_async, **options)

    return put


@pytest.mark.row("J9")
async def test_a_duplicate_is_not_queued_and_gets_the_first_handle(enqueue, queue):
    assert await enqueue() == Enqueued("job-1", duplicate=False)
    assert await enqueue() == Enqueued("job-1", duplicate=True)
    assert await enqueue("order:2") == Enqueued("job-2", duplicate=False)
    assert len(queue.jobs) == 2


async def test_names_keep_tasks_apart(enqueue):
    assert not (await enqueue(name="ship")).duplicate
    assert not (await enqueue(name="bill")).duplicate


@pytest.mark.row("J9")
@pytest.mark.parametrize("until", ["started", "finished", "succeeded", "ttl"])
@pytest.mark.parametrize("moment", ["started", "failed", "succeeded"])
async def test_the_worker_frees_the_key_as_the_rule_says(enqueue, once, queue, until, moment):
    await enqueue(until=until)
    tag = read_tag(queue.jobs[0][HEADER])
    free_tagged(once, tag, moment)
    freed_by = {"finished": {"failed", "succeeded"}, "ttl": set()}.get(until, {until})
    assert (await enqueue()).duplicate == (moment not in freed_by)
    await free_tagged_async(once, read_tag(queue.jobs[-1][HEADER]), "succeeded")


async def test_only_the_job_that_holds_the_key_frees_it(enqueue, once, queue, clock):
    await enqueue()
    first = read_tag(queue.jobs[0][HEADER])
    free_tagged(once, first, "succeeded")
    clock.advance("1ms")
    await enqueue()
    free_tagged(once, first, "succeeded")  # delivered again, late
    assert (await enqueue()).duplicate


@pytest.mark.row("J2")
async def test_after_the_ttl_it_can_be_queued_again(enqueue, clock):
    await enqueue(ttl="1min")
    clock.advance("61s")
    assert not (await enqueue()).duplicate


@pytest.mark.parametrize("error", [ValueError(), TimeoutError()])
async def test_a_publish_that_fails_undoes_the_claim(enqueue, queue, error):
    queue.fails = error
    with pytest.raises(type(error)):
        await enqueue()
    queue.fails = None
    assert await enqueue() == Enqueued("job-1", duplicate=False)


@pytest.mark.parametrize("key", ["order:1", ""])
def test_a_coroutine_is_not_taken_for_a_handle(once, queue, key):
    """Nobody would await it: the job would be lost, and each later one would be its duplicate."""
    with pytest.raises(ConfigurationError, match="use the async form"):
        enqueue_once(once, key, queue.publish_async)
    assert enqueue_once(once, key, queue.publish) == Enqueued("job-1", duplicate=False)


@pytest.mark.parametrize("key", ["order:1", ""])
async def test_a_blocking_publish_is_taken_on_an_event_loop(once, queue, key):
    """It has put the job into the queue when its value shows that it is none to await."""
    found = await enqueue_once_async(once, key, queue.publish)
    assert found == Enqueued("job-1", duplicate=False)
    assert len(queue.jobs) == 1


async def test_a_worker_may_be_faster_than_the_producers_settle(enqueue, once, queue, store):
    def settle(do):
        free_tagged(once, read_tag(queue.jobs[0][HEADER]), "succeeded")
        return do()

    store.instead("settle", settle)
    assert await enqueue() == Enqueued("job-1", duplicate=False)
    assert not (await enqueue()).duplicate


class Died(BaseException):
    """The producer is gone."""


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("kind", [enqueue_known, enqueue_known_async])
async def test_a_job_whose_producer_died_is_in_the_queue(store, kind, published):
    """Nobody knows whether it was, so that it is put there again, under its own id."""
    producers = [Once(store, observers=()).options(wait=0) for _ in range(2)]
    jobs = []

    def die(headers, handle):
        jobs.extend([(dict(headers), handle)] if published else [])
        raise Died

    def publish(headers, handle):
        jobs.append((dict(headers), handle))

    async def put(once, publish, handle):
        if kind is enqueue_known:
            return kind(once, "order:1", publish, handle, "ship")

        async def publish_async(headers, handle):
            publish(headers, handle)

        return await kind(once, "order:1", publish_async, handle, "ship")

    store.refuse("release", 1000)
    with pytest.raises(Died):
        await put(producers[0], die, "first")
    found = await put(producers[1], publish, "second")
    assert found == Enqueued("first", duplicate=True)
    assert {handle for _, handle in jobs} == {"first"}
    assert len(jobs) == 1 + published
    tag = read_tag(jobs[-1][0][HEADER])
    store.refuse("release", 0)
    free_tagged(producers[1], tag, "succeeded")
    assert await put(producers[1], publish, "third") == Enqueued("third", duplicate=False)


# Periods


async def test_one_job_is_enqueued_in_each_period(enqueue, monkeypatch):
    """Two schedulers fire on the hour, and their clocks differ."""
    hour = 3600
    handles = []
    for now in (hour * 9 - 5, hour * 9 + 5, hour * 10 - 5, hour * 10 + 5):
        monkeypatch.setattr("time.time", lambda now=now: now)
        handles.append(await enqueue(per="1h", until="started"))
    assert [one.handle for one in handles] == ["job-1", "job-1", "job-2", "job-2"]
    assert [one.duplicate for one in handles] == [False, True, False, True]
    assert not (await enqueue("", per="1h")).duplicate
    with pytest.raises(ConfigurationError, match="per"):
        await enqueue(per="often")


async def test_in_its_period_a_job_stays_enqueued(enqueue, once, queue, clock, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 0.0)
    await enqueue(per="1h")
    free_tagged(once, read_tag(queue.jobs[0][HEADER]), "succeeded")
    clock.advance("1h")
    assert (await enqueue(per="1h")).duplicate


async def test_what_is_published_counts_even_if_it_cannot_be_recorded(enqueue, store, monkeypatch):
    monkeypatch.setattr("oncekey.engine.engine.SETTLE_PATIENCE", 0.0)
    monkeypatch.setattr("oncekey.engine.engine_async.SETTLE_PATIENCE", 0.0)
    store.cut_off("settle", 1)
    assert await enqueue() == Enqueued("job-1", duplicate=False)


async def test_while_the_store_is_down_jobs_are_queued_without_a_tag(enqueue, store, queue):
    store.refuse("claim", 1)
    assert await enqueue() == Enqueued("job-1", duplicate=False)
    assert queue.jobs == [{}]


async def test_unless_the_once_says_otherwise(store, queue):
    closed = Once(store, observers=()).options(fail_mode="closed")
    store.refuse("claim", 1)
    with pytest.raises(StoreError):
        enqueue_once(closed, "order:1", queue.publish)
    assert queue.jobs == []


async def test_an_empty_key_is_queued_always(enqueue, queue, store):
    for _ in range(2):
        assert not (await enqueue("")).duplicate
    assert queue.jobs == [{}, {}]
    assert not store.calls


def test_two_producers_at_once_queue_one_job(store, queue):
    one, other = Once(store, observers=()), Once(store, observers=())

    def publish(headers):
        with pytest.raises(InProgressError):
            enqueue_once(other.options(wait=0), "order:1", queue.publish)
        return queue.publish(headers)

    assert enqueue_once(one, "order:1", publish) == Enqueued("job-1", duplicate=False)
    assert enqueue_once(other, "order:1", publish) == Enqueued("job-1", duplicate=True)


@pytest.mark.row("J8")
async def test_wrong_arguments_fail_at_once(once, queue):
    with pytest.raises(ConfigurationError, match="needs a Once"):
        enqueue_once(None, "k", queue.publish)
    with pytest.raises(ConfigurationError, match="puts the job"):
        enqueue_once(once, "k", None)
    with pytest.raises(ConfigurationError, match="until must be one of"):
        enqueue_once(once, "k", queue.publish, until="later")
    with pytest.raises(ConfigurationError, match="puts the job"):
        await enqueue_once_async(once, "k", None)


# Tags


def test_a_tag_comes_back_from_its_header():
    tag = Tag("enqueue:ship", "order:1", 2**60, "finished")
    assert read_tag(tag.text()) == tag


@pytest.mark.parametrize("text", [None, 7, "", "{}", '["a"]', '[null,"k",1,"later"]'])
def test_anything_else_is_no_tag(text):
    assert read_tag(text) is None


async def test_a_store_that_is_down_does_not_fail_the_job(once, store, caplog):
    store.refuse("forget", 2)
    tag = Tag(None, "k", 1, "finished")
    with caplog.at_level(logging.WARNING, "oncekey"):
        free_tagged(once, tag, "succeeded")
        await free_tagged_async(once, tag, "succeeded")
    assert [one.message.partition(",")[0] for one in caplog.records] == [
        "an enqueued job could not be freed"
    ] * 2
    free_tagged(once, None, "succeeded")
    await free_tagged_async(once, None, "succeeded")


def test_rules_are_checked():
    assert checked_until("ttl") == "ttl"
