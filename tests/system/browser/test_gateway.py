"""The gateway and a browser's own EventSource: no gap, whatever the page does."""

import pytest

from oncekey.events import AsyncBus, Bus, Gateway, Memory, Stages
from tests.patience import PATIENCE, until
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.system.browser.gateway_site import GatewaySite

__all__ = ["empty_redis", "redis_server"]

pytestmark = pytest.mark.xdist_group("browser")

JOB = "job-1"
STAGES = Stages({"work": (1, 9999)})
LARGE = "x" * 50_000


@pytest.fixture(autouse=True)  # first, so that it outlives the page
def counts():
    return {}


@pytest.fixture(autouse=True)
def memory():
    return Memory()


@pytest.fixture(autouse=True)
def site(memory, counts):
    def count(happening):
        counts[happening.name] = counts.get(happening.name, 0) + happening.count

    watcher = AsyncBus(memory, domain="scan", stages=STAGES, observers=[count])
    with GatewaySite(Gateway(watcher, allow=None, queue=10)) as site:
        site.watcher = watcher
        yield site


@pytest.fixture
def bus(memory):
    return Bus(memory, domain="scan", stages=STAGES)


@pytest.mark.row("E5", "E7")
def test_a_page_that_is_slow_has_every_event_once_and_in_order(site, page, bus, counts, complaints):
    """It shows what the server rendered, and its first address says what that was."""
    for number in range(1, 6):
        bus.publish(JOB, "work", number, seq=number)
    after = bus.read(JOB).events[-1].id
    page.goto(site.url)
    page.evaluate("([a, s]) => watch(a, s)", [f"/events/{JOB}?after={after}", [1, 2, 3, 4, 5]])
    page.wait_for_function("opened")
    bus.publish(JOB, "work", 6, seq=6)
    page.wait_for_function("shown.length === 6")
    page.evaluate("setTimeout(hang)")
    assert site.held.wait(PATIENCE)
    for number in range(7, 411):
        bus.publish(JOB, "work", LARGE, seq=number)
    # Its response ends, or it is cut off if it was still being told what came before.
    until(lambda: counts.get("slow") or counts.get("left"))
    site.release.set()
    page.wait_for_function("shown.at(-1) === 410")
    complaints[:] = [said for said in complaints if "INCOMPLETE_CHUNKED" not in said]
    assert page.evaluate("shown") == list(range(1, 411))
    assert page.evaluate("resyncs") == []
    assert page.evaluate("opened") > 1


def test_a_page_that_hangs_and_joins_late_costs_about_a_mebibyte(page, empty_redis):
    """It is sent as much as it takes; the rest waits in the log."""
    with Bus(empty_redis.url, domain="scan", stages=STAGES) as bus:
        for number in range(1, 61):
            bus.publish(JOB, "work", "x" * 250_000, seq=number)
    watcher = AsyncBus(empty_redis.url, domain="scan", stages=STAGES)
    sizes, held = [], [0]
    with GatewaySite(measured(watcher, sizes, held)) as site:
        page.goto(site.url)
        page.evaluate("a => watch(a, [])", f"/events/{JOB}")
        page.evaluate("setTimeout(hang)")
        assert site.held.wait(PATIENCE)
        until(lambda: sum(sizes) > 250_000)
        site.release.set()
        page.wait_for_function("shown.at(-1) === 60")
        assert page.evaluate("shown") == list(range(1, 61))
        page.goto("about:blank")
    assert max(sizes) <= 64 * 1024
    assert max(held) < 3_000_000, "more than a page that is sent and one that waits"


def measured(watcher, sizes, held):
    """A gateway; put down the size of each part, and how much was read and not sent by then."""
    read, taken = watcher.following._read, []

    async def counted(*asked):
        part = await read(*asked)
        taken.append(sum(len(entry.payload) for entry in part.entries))
        return part

    watcher.following._read = counted
    gateway = Gateway(watcher, allow=None)

    async def answer(scope, receive, send):
        async def sent(message):
            held.append(sum(taken) - sum(sizes))
            sizes.append(len(message.get("body", b"")))
            await send(message)

        await gateway(scope, receive, sent)

    return answer


@pytest.mark.row("E5", "E7")
def test_a_page_that_never_reads_is_let_go_and_has_everything_when_it_comes_back(
    page, memory, bus, complaints, monkeypatch
):
    """Even if it may let everything wait."""
    monkeypatch.setattr("oncekey.events.subscription.BUDGET", 10**9)
    watcher = AsyncBus(memory, domain="scan", stages=STAGES)
    gateway = Gateway(watcher, allow=None, send_timeout="500ms", queue=10**6)
    with GatewaySite(gateway) as site:
        page.goto(site.url)
        page.evaluate("a => watch(a, [])", f"/events/{JOB}")
        page.wait_for_function("opened")
        page.evaluate("setTimeout(hang)")
        assert site.held.wait(PATIENCE)
        for number in range(1, 401):  # more than the buffers of both sockets can take
            bus.publish(JOB, "work", LARGE, seq=number)
        until(lambda: not gateway._open)
        site.release.set()
        page.wait_for_function("shown.at(-1) === 400")
        assert page.evaluate("shown") == list(range(1, 401))
        assert page.evaluate("resyncs") == []
        page.goto("about:blank")
    complaints[:] = [said for said in complaints if "INCOMPLETE_CHUNKED" not in said]


@pytest.mark.row("E5")
def test_a_page_is_told_at_once_without_a_router(page, empty_redis, monkeypatch):
    """Nobody looks unasked: only the nudge of the publisher wakes the gateway."""
    monkeypatch.setattr("oncekey.events.subscription.PATIENCE", 2 * PATIENCE)
    watcher = AsyncBus(empty_redis.url, domain="scan", stages=STAGES)
    with (
        GatewaySite(Gateway(watcher, allow=None)) as site,
        Bus(empty_redis.url, domain="scan", stages=STAGES) as bus,
    ):
        page.goto(site.url)
        page.evaluate("a => watch(a, [])", f"/events/{JOB}")
        page.wait_for_function("opened")
        for number in range(1, 21):
            bus.publish(JOB, "work", number, seq=number)
            page.wait_for_function("n => shown.length === n", arg=number)
        assert page.evaluate("shown") == list(range(1, 21))
        page.goto("about:blank")
