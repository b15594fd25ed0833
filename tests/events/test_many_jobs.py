"""Several jobs and topics on one connection: each as if it had a connection of its own."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest

from oncekey.events import AsyncBus, Gateway, Memory, Stages, bundle, join_cursors, subscription
from oncekey.events.sse import MOST_NAMES
from tests.events.browsers import Browser, serving
from tests.patience import PATIENCE, until_async

MANY = Stages({"work": (1, 9999)})


async def fill(bus, job, count, start=1):
    for number in range(start, start + count):
        await bus.publish(job, "work", {"text": "ä\n\n", "n": number}, seq=number)


def asking(*names):
    return "?" + "&".join(f"job={name}" for name in names)


def numbers(count):
    return list(range(1, count + 1))


@pytest.fixture
def bus():
    return AsyncBus(Memory(), domain="scan", stages=MANY)


@pytest.fixture
def nobody_looks_unasked(monkeypatch):
    """Who is not woken is too late."""
    for module in (subscription, bundle):
        monkeypatch.setattr(module, "PATIENCE", 2 * PATIENCE)


@pytest.mark.row("E5", "E7")
async def test_clients_that_are_cut_off_anywhere_have_every_event_of_every_job(system):
    chance = random.Random(7)  # noqa: S311 - no secret
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    jobs = ["a", "b", "order/1", "order/2"]
    async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None)) as port:
        browsers = [Browser(port, "", asking("a", "b", "order/*")) for _ in range(4)]

        def complete(browser):
            return all(len(browser.jobs[job]) >= 20 for job in jobs)

        async def follow(browser):
            for _ in range(6):
                await browser.visit(cut=chance.randrange(1, 4000))
            await browser.visit(until=lambda: complete(browser))

        watching = [asyncio.create_task(follow(browser)) for browser in browsers]
        for start in range(1, 21, 4):
            for job in jobs:
                await fill(bus, job, 4, start)
        await asyncio.gather(*watching)
    for browser in browsers:
        assert browser.jobs == {job: numbers(20) for job in jobs}
        assert browser.resyncs == []


ALL = {"a": [1, 2, 3], "b": [1, 2, 3]}
PLACES = {
    "none": (lambda ids: "", ALL, []),
    "both": (lambda ids: {"a": ids["a"][0], "b": ids["b"][1]}, {"a": [2, 3], "b": [3]}, []),
    "the other way round": (
        lambda ids: {"b": ids["b"][2], "a": ids["a"][0]},
        {"a": [2, 3]},
        [],
    ),
    "one of them": (lambda ids: {"b": ids["b"][1]}, {"a": [1, 2, 3], "b": [3]}, []),
    "of another job": (lambda ids: {"c": ids["c"][1]}, ALL, []),
    "one in the other": (
        lambda ids: {"a": ids["b"][1], "b": ids["b"][1]},
        {"a": [1, 2, 3], "b": [3]},
        ["epoch"],
    ),
    "nonsense": (lambda ids: "nonsense", ALL, ["foreign"] * 2),
    "the id of one job": (lambda ids: ids["a"][0], ALL, ["foreign"] * 2),
}


@pytest.mark.row("E5")
@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize("header", [True, False])
async def test_each_job_goes_on_from_its_own_place(bus, case, header):
    make, expected, resyncs = PLACES[case]
    ids = {}
    for job in ("a", "b", "c"):
        await fill(bus, job, 3)
        ids[job] = [event.id for event in (await bus.read(job)).events]
    after = make(ids)
    after = after if isinstance(after, str) else join_cursors(after)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", asking("a", "b") + ("" if header else f"&after={after}"))
        browser.last = after if header else ""
        await browser.visit(until=lambda: browser.jobs == expected)
        assert sorted(browser.resyncs) == resyncs
        browser.jobs.clear()
        await fill(bus, "a", 1, 4)
        await fill(bus, "b", 1, 4)
        await browser.visit(until=lambda: len(browser.jobs) == 2)
    assert browser.jobs == {"a": [4], "b": [4]}
    assert sorted(browser.resyncs) == resyncs


async def test_a_resync_gives_the_place_before_what_follows_for_its_job_alone(bus):
    await fill(bus, "b", 1)
    [event] = (await bus.read("b")).events
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", asking("a", "b"))
        browser.last = join_cursors({"a": "ab.1.cd", "b": event.cursor})
        visit = asyncio.create_task(browser.visit(until=2))
        await browser.told.wait()
        assert browser.last == join_cursors({"a": "0.0.-", "b": event.cursor})
        await browser.visit(cut=3)  # with an id that leads to no other resync
        await fill(bus, "a", 1)
        await fill(bus, "b", 1, 2)
        await visit
    assert browser.resyncs == ["epoch"]
    assert browser.jobs == {"a": [1], "b": [2]}


async def test_only_what_is_allowed_is_sent_and_a_secret_job_is_not_even_named(bus):
    for job in ("mine", "theirs", "order/mine", "order/theirs"):
        await fill(bus, job, 2)
    asked = []

    async def allow(_scope, job):
        asked.append(job)
        return job.endswith("mine")

    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=allow)) as port:
        browser = Browser(port, "", asking("mine", "theirs", "order/*"))
        visit = asyncio.create_task(browser.visit(until=5))
        await until_async(lambda: len(browser.list) == 4)
        await fill(bus, "order/theirs", 1, 3)
        await fill(bus, "theirs", 1, 3)
        await fill(bus, "mine", 1, 3)
        await visit
        bad = Browser(port, "", asking("theirs", "other"))
        await bad.visit()
    assert browser.jobs == {"mine": [1, 2, 3], "order/mine": [1, 2]}
    assert browser.refused == {"theirs": "forbidden"}
    assert sorted(set(asked)) == ["mine", "order/mine", "order/theirs", "other", "theirs"]
    assert bad.head.split()[1] == b"403"


async def test_a_job_that_is_not_allowed_any_more_ends_and_the_others_go_on(bus):
    await fill(bus, "a", 1)
    await fill(bus, "b", 1)
    taken = asyncio.Event()

    def allow(_scope, job):
        if job == "a":
            return True
        if taken.is_set():
            return False
        return datetime.now(UTC) + timedelta(seconds=0.02)

    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=allow)) as port:
        browser = Browser(port, "", asking("a", "b", "order/*"))
        visit = asyncio.create_task(browser.visit(until=3))
        await until_async(lambda: len(browser.list) == 2)
        taken.set()
        await browser.told.wait()
        await fill(bus, "b", 1, 2)
        await fill(bus, "a", 1, 2)
        await visit
    assert browser.refused == {"b": "forbidden"}
    assert browser.jobs == {"a": [1, 2], "b": [1]}


async def test_a_job_of_a_topic_that_was_not_allowed_is_asked_about_again(bus):
    allowed = False

    def allow(_scope, job):
        return allowed

    gateway = Gateway(bus, allow=allow, recheck="20ms", heartbeat="5ms")
    async with asyncio.timeout(PATIENCE), serving(gateway) as port:
        browser = Browser(port, "", asking("order/*"))
        visit = asyncio.create_task(browser.visit(until=1))
        await fill(bus, "order/1", 1)
        await until_async(lambda: browser.beats > 3)
        allowed = True
        await visit
    assert browser.jobs == {"order/1": [1]}


@pytest.mark.row("E5")
async def test_a_job_of_a_topic_that_is_allowed_again_goes_on_where_it_was(bus):
    allowed = True

    def allow(_scope, job):
        return job == "a" or allowed

    gateway = Gateway(bus, allow=allow, recheck="20ms")
    async with asyncio.timeout(PATIENCE), serving(gateway) as port:
        browser = Browser(port, "", asking("a", "order/*"))
        visit = asyncio.create_task(browser.visit(until=4))
        await fill(bus, "order/1", 2)
        await until_async(lambda: len(browser.list) == 2)
        allowed = False
        await until_async(lambda: "order/1" not in followed(bus))
        await fill(bus, "order/1", 2, 3)
        allowed = True
        await visit
    assert browser.jobs == {"order/1": [1, 2, 3, 4]}


def followed(bus):
    return [job for readers in bus.following._loops.values() for job in readers]


@pytest.mark.row("E5")
async def test_a_job_of_a_topic_that_ran_out_and_begins_again_is_a_resync():
    now = 0.0
    bus = AsyncBus(Memory(lambda: now), domain="scan", stages=MANY)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", asking("order/*"))
        visit = asyncio.create_task(browser.visit(until=lambda: browser.resyncs and browser.list))
        await fill(bus, "order/1", 2)
        await until_async(lambda: len(browser.list) == 2)
        now = 10_000.0
        await fill(bus, "order/2", 1)
        await until_async(lambda: "order/1" not in followed(bus))
        await fill(bus, "order/1", 1)
        await visit
    assert browser.resyncs == ["epoch"]
    assert browser.jobs == {"order/1": [1], "order/2": [1]}


async def test_a_question_that_fails_is_a_no_and_before_the_first_byte_an_error(bus, caplog):
    await fill(bus, "a", 1)
    fails = False

    def allow(_scope, job):
        if fails or job == "order/1":
            raise LookupError(job)
        return datetime.now(UTC) + timedelta(seconds=0.02)

    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=allow)) as port:
        browser = Browser(port, "", asking("a", "order/*"))
        visit = asyncio.create_task(browser.visit(until=lambda: browser.refused))
        await until_async(lambda: browser.list)
        await fill(bus, "order/1", 1)
        await until_async(lambda: any("order/1" in one.message for one in caplog.records))
        fails = True
        await visit
        bad = Browser(port, "", asking("a"))
        await bad.visit()
    assert browser.jobs == {"a": [1]}
    assert browser.refused == {"a": "forbidden"}
    assert bad.head.split()[1] == b"500"
    assert all("allow failed" in one.message for one in caplog.records if "oncekey" in one.name)


TOO_MANY = asking(*(f"job-{n}" for n in range(MOST_NAMES + 1)))


@pytest.mark.parametrize(
    ("query", "last", "status"),
    [
        (TOO_MANY, "", 400),
        (asking("a"), "a" * 4097, 400),
        (asking("a", "j" * 513), "", 400),
        (asking("a", "a/b/*"), "", 400),
        (asking("a", "/*"), "", 400),
        (asking("a", "%ED%A0%80" * 300), "", 400),
        (asking("a") + "&last_seq=3", "", 400),
        ("?job=", "", 404),
        (asking(*(f"job-{n}" for n in range(MOST_NAMES))), "", 200),
        (asking("a", "a", "a"), "\xff\x80", 200),
    ],
)
async def test_what_cannot_be_followed_together_is_refused(bus, query, last, status, caplog):
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", query)
        browser.last = last
        await browser.visit(cut=3)
    assert browser.head.split()[1] == str(status).encode()
    assert not caplog.records


@pytest.mark.row("E5")
@pytest.mark.usefixtures("nobody_looks_unasked")
async def test_a_job_of_a_topic_is_followed_as_soon_as_it_begins(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None)) as port:
        browser = Browser(port, "", asking("order/*"))
        await fill(bus, "order/0", 1)
        await fill(bus, "other/0", 1)
        await fill(bus, "order", 1)
        visit = asyncio.create_task(browser.visit(until=11))
        for number in range(1, 11):
            await until_async(lambda n=number: len(browser.list) == n)
            await fill(bus, f"order/{number}", 1)
        await visit
    assert browser.jobs == {f"order/{number}": [1] for number in range(11)}


async def test_a_topic_forgets_jobs_that_have_run_out(empty_redis):
    topic, client = "{scan:0}:topic:order", empty_redis.client()
    async with AsyncBus(empty_redis.url, domain="scan", stages=MANY, shards=1) as bus:
        await fill(bus, "order/1", 1)
        await fill(bus, "order/2", 1)
        assert sorted(await bus._log.topic("order", 0)) == ["order/1", "order/2"]
        client.zadd(topic, {"order/1": int(client.time()[0]) - 1})  # a second ago
        assert await bus._log.topic("order", 0) == ["order/2"]
        assert client.zcard(topic) == 2
        await fill(bus, "order/3", 1)
        assert client.zcard(topic) == 2, "the next job that begins takes it out"
        assert sorted(await bus._log.topic("order", 0)) == ["order/2", "order/3"]
        assert 7000 < client.ttl(topic) <= 7200


@pytest.mark.row("E5", "E7")
async def test_an_id_is_bounded_and_what_is_not_in_it_comes_again(bus):
    """The client can tell by the offset that it has seen an event."""
    jobs = [f"order/{n}" for n in range(150)]
    for job in jobs:
        await fill(bus, job, 1)
    await fill(bus, "named", 1)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", asking("named", "order/*"))
        await browser.visit(until=151)
        for job in jobs[:5]:
            await fill(bus, job, 1, 2)
        seen = len(browser.list)
        await browser.visit(until=lambda: all(2 in browser.jobs[job] for job in jobs[:5]))
    assert max(map(len, browser.ids)) <= 4096
    assert browser.jobs["named"] == [1], "the named ones always fit"
    again = len(browser.list) - seen - 5
    assert 0 < again < 150
    for job in jobs:
        assert sorted(set(browser.jobs[job])) == ([1, 2] if job in jobs[:5] else [1])
    assert browser.resyncs == []


async def test_a_topic_with_too_many_jobs_is_refused_aloud(bus, monkeypatch, caplog):
    monkeypatch.setattr(bundle, "MOST_JOBS", 2)
    for number in range(3):
        await fill(bus, f"order/{number}", 1)
    await fill(bus, "a", 1)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", asking("a", "order/*"))
        await browser.visit(until=lambda: browser.refused and browser.list)
    assert browser.refused == {"order/*": "too many"}
    assert browser.jobs == {"a": [1]}
    assert [one.message for one in caplog.records] == ["topic 'order' has more than 2 living jobs"]


async def test_a_job_that_cannot_be_read_does_not_hold_up_the_others(empty_redis, caplog):
    async with AsyncBus(empty_redis.url, domain="scan", stages=MANY, shards=1) as bus:
        for job in ("bad", "order/bad"):
            await fill(bus, job, 1)
            empty_redis.client().rpush(f"{{scan:0}}:log:{job}", b"somebody was here")
        await fill(bus, "good", 1)
        async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
            browser = Browser(port, "", asking("bad", "good", "order/*"))
            visit = asyncio.create_task(browser.visit(until=2))
            await until_async(lambda: len(browser.refused) == 2 and browser.list)
            await fill(bus, "good", 1, 2)
            await visit
    assert browser.refused == {"bad": "unreadable", "order/bad": "unreadable"}
    assert browser.jobs == {"good": [1, 2]}
    told = [one.message for one in caplog.records if "cannot be read" in one.message]
    assert len(told) == 2, "each is tried once"


async def test_the_state_of_each_job_comes_before_its_events(bus):
    await fill(bus, "a", 3)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "", asking("a", "b", "order/*") + "&state=1")
        visit = asyncio.create_task(browser.visit(until=4))
        await until_async(lambda: len(browser.list) == 3)
        await fill(bus, "order/1", 1)
        await visit
    told = {one["job_id"]: one["state"] and one["state"]["seq"] for one in browser.states}
    assert told == {"a": 3, "b": None, "order/1": 1}


async def test_a_quiet_connection_is_alive_and_nothing_is_left_when_it_goes(bus):
    ears = bus._log._log._memory.ears
    async with (
        asyncio.timeout(PATIENCE),
        serving(Gateway(bus, allow=None, heartbeat="10ms")) as port,
    ):
        browser = Browser(port, "", asking("a", "b", "order/*"))
        await browser.visit(cut=30)
        await until_async(lambda: not ears)
    assert browser.beats >= 5
    assert not any(bus.following._loops.values())
    assert not any(bus.topics._loops.values())
