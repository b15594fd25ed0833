"""Browsers on a real server: each gets every event once and in order, or an explicit resync."""

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.routing import Mount, Route

from oncekey import ConfigurationError
from oncekey.events import AsyncBus, Bus, Gateway, Stages
from oncekey.events.starlette import EventResponse
from tests.events.browsers import Browser, serving
from tests.patience import PATIENCE, until_async

MANY = Stages({"work": (1, 9999)})


async def fill(bus, count, start=1):
    for number in range(start, start + count):
        await bus.publish("job-1", "work", {"text": "ä\n\n", "n": number}, seq=number)


@pytest.mark.row("E5", "E7")
async def test_clients_that_are_cut_off_anywhere_end_with_the_whole_log(system):
    chance = random.Random(5)  # noqa: S311 - no secret
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None)) as port:
        browsers = [Browser(port, "job-1") for _ in range(8)]

        async def follow(browser):
            for _ in range(6):
                await browser.visit(until=60, cut=chance.randrange(1, 2500))
            await browser.visit(until=60)

        watching = [asyncio.create_task(follow(browser)) for browser in browsers]
        for start in range(1, 61, 5):
            await fill(bus, 5, start)
            await asyncio.to_thread(system.routed)
        await asyncio.gather(*watching)
    for browser in browsers:
        assert browser.list == list(range(1, 61))
        assert browser.resyncs == []


@pytest.mark.row("E5")
@pytest.mark.parametrize(
    ("query", "last", "expected", "resyncs"),
    [
        ("", "", [1, 2, 3, 4], []),
        ("?last_seq=0", "", [1, 2, 3, 4], []),
        ("?last_seq=2", "", [3, 4], []),
        ("?after={2}", "", [3, 4], []),
        ("?after={1}&last_seq=1", "{3}", [4], []),
        ("?last_seq=77", "", [], []),
        ("?last_seq=-1", "", [1, 2, 3, 4], ["foreign"]),
        ("?last_seq=" + "9" * 5000, "", [1, 2, 3, 4], ["foreign"]),
        ("?after=nonsense", "", [1, 2, 3, 4], ["foreign"]),
        ("", "nonsense", [1, 2, 3, 4], ["foreign"]),
        ("", "ab.1.cd", [1, 2, 3, 4], ["epoch"]),
    ],
)
async def test_a_client_says_what_it_saw_last(query, last, expected, resyncs):
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    await fill(bus, 4)
    ids = ["", *(event.id for event in (await bus.read("job-1")).events)]
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "job-1", query.format(*ids))
        browser.last = last.format(*ids)
        await browser.visit(until=len(expected), cut=None if expected else 3)
    assert (browser.list, browser.resyncs) == (expected, resyncs)
    assert browser.last == (ids[4] if expected else "")
    assert b"content-type: text/event-stream" in browser.head


async def test_a_resync_gives_the_place_before_what_follows_as_id():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, "job-1")
        browser.last = "ab.1.cd"
        visit = asyncio.create_task(browser.visit(until=1))
        await browser.told.wait()
        assert browser.last == "0.0.-"
        await browser.visit(cut=3)  # with an id that leads to no other resync
        await fill(bus, 1)
        await visit
    assert (browser.list, browser.resyncs) == ([1], ["epoch"])


async def test_the_state_comes_first_when_it_is_asked_for():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        early = Browser(port, "job-1", "?state=1")
        await early.visit(cut=38)
        await fill(bus, 3)
        late = Browser(port, "job-1", "?state=1&last_seq=2")
        await late.visit(until=1)
    assert early.states == [None]
    assert [state["seq"] for state in late.states] == [3]
    assert late.list == [3]


async def test_a_client_waits_for_a_state_that_cannot_be_told_now(
    another_redis, monkeypatch, caplog
):
    """An answer of 500 would end the tries of an EventSource for good."""
    monkeypatch.setattr("oncekey.events.gateway._PAUSE", 0.01)
    server = another_redis(appendonly="yes", appendfsync="always")
    async with AsyncBus(server.url, domain="scan", stages=MANY) as bus:
        await fill(bus, 2)
        server.kill()
        assert server.process.returncode == -9
        state, tries = bus.state, Counter()

        async def counted(job):
            tries[asyncio.current_task()] += 1
            return await state(job)

        monkeypatch.setattr(bus, "state", counted)
        async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
            left, kept = Browser(port, "job-1", "?state=1"), Browser(port, "job-1", "?state=1")
            await left.visit(cut=1)
            visit = asyncio.create_task(kept.visit(until=2))
            await until_async(lambda: kept.head and max(tries.values()) > 2)  # it says so once
            await asyncio.to_thread(server.start)
            await visit
    told = [one for one in caplog.records if "waits for the state" in one.message]
    assert len(told) == 2, "once for each client"
    assert (kept.states, kept.list) == ([None], [1, 2])
    assert left.head.split()[1] == kept.head.split()[1] == b"200"


HOSTILE = {
    "bytes that are no text": ("job-1", "", b"\xff\xfe\x80"),
    "a long id": ("job-1", "", b"a" * 8000),
    "an id of somebody else": ("job-1", "", b"1700000000000-0"),
    "half a character": ("job-1", "?after=%F0%9F&last_seq=%00", b""),
    "a number of another script": ("job-1", "?last_seq=%D9%A3", b""),
    "a number that is none": ("job-1", "?last_seq=1e3", b""),
    "no sense at all": ("job-1", "?&&=%&after", b""),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_whatever_a_client_sends_is_no_error_of_ours(case, caplog):
    job, query, last = HOSTILE[case]
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    await fill(bus, 2)
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, job, query)
        browser.last = last.decode("latin-1")
        await browser.visit(until=2)
    assert browser.head.split()[1] == b"200"
    assert browser.list == [1, 2]
    assert browser.resyncs in ([], ["foreign"])
    assert bool(browser.resyncs) == ("after=" in query or "last_seq=" in query or bool(last))
    assert not caplog.records


@pytest.mark.parametrize("path", ["", "j" * 513, "%ED%A0%80" * 200])
async def test_an_address_that_is_no_job_is_not_found(path, caplog):
    bus = AsyncBus("memory://", domain="scan")
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browser = Browser(port, path)
        await browser.visit()
    assert browser.head.split()[1] == b"404"
    assert not caplog.records


async def test_a_quiet_client_hears_that_the_line_is_alive_and_is_forgotten_when_it_goes():
    bus = AsyncBus("memory://", domain="scan")
    ears = bus._log._log._memory.ears
    gateway = Gateway(bus, allow=None, heartbeat="10ms")
    async with asyncio.timeout(PATIENCE), serving(gateway) as port:
        browser = Browser(port, "job-1")
        await browser.visit(cut=30)
        await until_async(lambda: not ears)
    assert browser.beats >= 5


async def test_each_client_is_told_another_moment_to_come_back():
    """If all came back at once, a server that was just started would be overrun."""
    bus = AsyncBus("memory://", domain="scan")
    async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=None)) as port:
        browsers = [Browser(port, "job-1", "?state=1") for _ in range(10)]
        for browser in browsers:
            await browser.visit(until=lambda b=browser: b.states)
    pauses = [pause for browser in browsers for pause in browser.retries]
    assert len(pauses) == 10
    assert all(1000 <= pause <= 3000 for pause in pauses)
    assert len(set(pauses)) > 1


async def test_who_may_watch_is_asked_for_each_job():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    await fill(bus, 1)

    async def slowly(_scope, job):
        return job == "job-1"

    for allow in (lambda _scope, job: job == "job-1", slowly):
        async with asyncio.timeout(PATIENCE), serving(Gateway(bus, allow=allow)) as port:
            good, bad, none = (Browser(port, job) for job in ("job-1", "job-2", ""))
            await good.visit(until=1)
            await bad.visit()
            await none.visit()
        assert [one.head.split()[1] for one in (good, bad, none)] == [b"200", b"403", b"404"]


async def test_other_methods_connections_and_buses_are_refused():
    gateway = Gateway(AsyncBus("memory://", domain="scan"), allow=None)
    sent = []

    async def send(message):
        sent.append(message)

    post = {"type": "http", "method": "POST", "path": "/job-1", "headers": []}
    await gateway(post, None, send)
    assert sent[0]["status"] == 405
    assert (b"allow", b"GET") in sent[0]["headers"]
    with pytest.raises(ConfigurationError):
        await gateway({"type": "lifespan"}, None, send)
    await gateway({"type": "websocket"}, None, send)
    assert sent[-1] == {"type": "websocket.close", "code": 1008}
    with pytest.raises(ConfigurationError):
        Gateway(Bus("memory://", domain="scan"), allow=None)


async def test_in_starlette_it_is_mounted_or_returned():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    await fill(bus, 2)
    gateway = Gateway(bus, allow=None)

    async def watch(request):
        return EventResponse(gateway, request.path_params["job"])

    app = Starlette(routes=[Route("/own/{job}", watch), Mount("/events", gateway)])
    async with asyncio.timeout(PATIENCE), serving(app) as port:
        for path in ("own/job-1", "events/job-1"):
            browser = Browser(port, path)
            await browser.visit(until=2)
            assert browser.list == [1, 2]


async def test_a_response_of_starlette_keeps_cookies_headers_and_background_tasks():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    await fill(bus, 1)
    gateway, after = Gateway(bus, allow=None), asyncio.Event()

    async def done():
        after.set()

    async def watch(request):
        response = EventResponse(
            gateway, "job-1", headers={"X-Own": "1"}, background=BackgroundTask(done)
        )
        response.set_cookie("seen", "yes")
        return response

    app = Starlette(routes=[Route("/", watch)])
    async with asyncio.timeout(PATIENCE), serving(app) as port:
        browser = Browser(port, "")
        await browser.visit(until=1)
        await after.wait()
    assert b"x-own: 1\r\n" in browser.head
    assert b"set-cookie: seen=yes" in browser.head
    assert browser.head.count(b"content-type: text/event-stream") == 1


@pytest.mark.parametrize("stalled", [False, True])
async def test_a_server_that_ends_is_not_held_up(stalled, monkeypatch):
    """Neither by a client that reads nor by one that does not."""
    monkeypatch.setattr("oncekey.events.gateway._SHUTDOWN", 0.05)
    said = []
    told = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(told, "error", lambda text, *_: said.append(text))
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    gateway = Gateway(bus, allow=None, send_timeout="1h")
    async with asyncio.timeout(PATIENCE):
        async with serving(gateway, graceful=5) as port:
            browser = Browser(port, "job-1")
            browser.buffer = 4096
            arrived, go_on = asyncio.Event(), asyncio.Event()
            visit = asyncio.create_task(browser.visit(pause=(arrived, go_on) if stalled else None))
            await until_async(lambda: gateway._open)
            if stalled:
                await arrived.wait()
                for number in range(1, 41):
                    await bus.publish("job-1", "work", "x" * 200_000, seq=number)
                    await asyncio.sleep(0)
                [connection] = gateway._open
                await until_async(lambda: connection._blocked)
        go_on.set()
        with suppress(ConnectionError):
            await visit
    assert said == []


async def test_a_client_that_takes_nothing_is_cut_off(caplog):
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    gateway = Gateway(bus, allow=None, send_timeout="50ms")
    async with asyncio.timeout(PATIENCE), serving(gateway) as port:
        browser = Browser(port, "job-1")
        browser.buffer = 4096
        arrived, go_on = asyncio.Event(), asyncio.Event()
        visit = asyncio.create_task(browser.visit(pause=(arrived, go_on)))
        await arrived.wait()
        for number in range(1, 41):
            await bus.publish("job-1", "work", "x" * 200_000, seq=number)
        await until_async(lambda: not gateway._open)
        go_on.set()
        with suppress(ConnectionError):
            await visit
        seen = len(browser.list)
        while len(browser.list) < 40:  # on a busy machine it may be too slow again
            with suppress(ConnectionError):
                await browser.visit(until=40)
    assert browser.list == list(range(1, 41))
    assert seen < 40
    assert browser.resyncs == []
    assert not caplog.records


async def test_who_may_watch_is_asked_again_and_may_be_told_until_when():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    await fill(bus, 1)
    asked = []

    def twice(_scope, job):
        asked.append(job)
        return len(asked) < 3

    def until(_scope, job):
        asked.append(job)
        return datetime.now(UTC) + timedelta(seconds=1) if len(asked) == 1 else False

    for allow, times in ((twice, 3), (until, 2)):
        asked.clear()
        gateway = Gateway(bus, allow=allow, recheck="50ms" if allow is twice else "1h")
        async with asyncio.timeout(PATIENCE), serving(gateway) as port:
            browser = Browser(port, "job-1")
            await browser.visit()  # the gateway ends it
            assert browser.list == [1]
            assert len(asked) == times
            await browser.visit()
            assert browser.head.split()[1] == b"403" or allow is until


@pytest.mark.parametrize("option", ["recheck", "heartbeat", "send_timeout", "queue", "allow"])
def test_an_option_that_makes_no_sense_is_named(option):
    bus = AsyncBus("memory://", domain="scan")
    with pytest.raises(ConfigurationError, match=option):
        Gateway(bus, **{"allow": None, option: "nonsense"})


async def test_the_log_is_read_in_pages_of_json():
    stages = Stages({"load": (1, 99), "save": (100, 199)})
    bus = AsyncBus("memory://", domain="scan", stages=stages)
    for number in range(1, 6):
        await bus.publish("job-1", "load", number, seq=number)
        await bus.publish("job-1", "save", number, seq=100 + number)
    middle = (await bus.read("job-1")).events[4]
    headers = {"Accept": "application/json"}
    async with serving(Gateway(bus, allow=lambda _, job: job == "job-1")) as port:
        base = f"http://127.0.0.1:{port}/"
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE) as client:
            seen, after = [], ""
            while True:
                page = (await client.get("job-1", params={"limit": 3, "after": after})).json()
                seen += page["events"]
                if not page["more"]:
                    break
                after = page["cursor"]
            assert [one["offset"] for one in seen] == list(range(1, 11))
            assert seen[4]["id"] == middle.id
            for query, expected in [
                ({"stage": "save"}, [2, 4, 6, 8, 10]),
                ({"since": middle.timestamp}, [5, 6, 7, 8, 9, 10]),
                ({"last_seq": 103}, [8, 10]),
                ({"after": middle.id, "stage": ["load", "none"]}, [7, 9]),
            ]:
                page = (await client.get("job-1", params=query)).json()
                assert [one["offset"] for one in page["events"]] == expected
            assert (await client.get("job-1?after=nonsense")).json()["resync"] == "foreign"
            for bad, told in [
                ("limit=0", "limit is a whole number above zero, not '0'"),
                ("limit=x", "limit is a whole number above zero, not 'x'"),
                ("since=yesterday", "such as 2026-01-01T00:00:00Z, not 'yesterday'"),
                ("since=2026-01-01", "such as 2026-01-01T00:00:00Z, not '2026-01-01'"),
                ("since=2026-01-01T00:00:00+00:00", "+ is written as %2B"),
            ]:
                refused = await client.get(f"job-1?{bad}")
                assert refused.status_code == 400
                assert refused.json()["error"].endswith(told)
            assert (await client.get("job-2")).status_code == 403


async def test_pages_of_other_origins_may_read_if_they_are_named():
    bus = AsyncBus("memory://", domain="scan", stages=MANY)
    ask = {"Accept": "application/json", "Origin": "https://shop.example"}
    asks = {**ask, "Access-Control-Request-Method": "GET"}
    asks["Access-Control-Request-Headers"] = "x-token"
    for origins, allowed in (
        ((), None),
        (["https://shop.example"], "https://shop.example"),
        (["*"], "*"),
    ):
        gateway = Gateway(bus, allow=lambda _, job: job == "job-1", origins=origins)
        async with serving(gateway) as port, httpx.AsyncClient(timeout=PATIENCE) as client:
            url = f"http://127.0.0.1:{port}/job-1"
            answers = [await client.get(url, headers=ask), await client.get(f"{url}2", headers=ask)]
            name = "access-control-allow-origin"
            assert [one.headers.get(name) for one in answers] == [allowed] * 2
            before = await client.options(url, headers=asks)
            assert before.status_code == (405 if allowed is None else 204)
            assert before.headers.get("access-control-allow-headers") == (allowed and "x-token")
            with_cookies = before.headers.get("access-control-allow-credentials")
            assert with_cookies == ("true" if allowed == "https://shop.example" else None)


@pytest.mark.parametrize(
    "origins",
    [
        "https://shop.example",
        None,
        ["shop.example"],
        ["https://shop.example/"],
        ["https://Shop.example"],
        ["null"],
        [1],
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(origins):
    """No page could ever read the answers, and nobody would say why."""
    bus = AsyncBus("memory://", domain="scan")
    with pytest.raises(ConfigurationError, match="origins"):
        Gateway(bus, allow=None, origins=origins)
    Gateway(bus, allow=None, origins=["http://localhost:3000", "app+x://page", "*"])


async def test_an_answer_of_allow_that_is_none_is_an_error_and_not_a_no():
    gateway = Gateway(AsyncBus("memory://", domain="scan"), allow=lambda _scope, _job: "ann")
    scope = {"type": "http", "method": "GET", "path": "/job-1", "headers": []}
    with pytest.raises(ConfigurationError, match="return a bool or a time, not an object of str"):
        await gateway(scope, None, None)


async def test_a_response_of_starlette_ends_for_head_and_for_what_can_be_no_job():
    """Starlette calls a route for GET for HEAD too; what comes next waits for its end."""
    bus = AsyncBus("memory://", domain="scan")
    gateway = Gateway(bus, allow=None)

    async def watch(request):
        return EventResponse(gateway, request.path_params["job"], headers={"X-Own": "1"})

    app = Starlette(routes=[Route("/{job:path}", watch)])
    async with serving(app) as port, httpx.AsyncClient(timeout=PATIENCE) as client:
        base = f"http://127.0.0.1:{port}"
        head = await client.head(f"{base}/job-1")
        assert (head.status_code, head.headers["x-own"]) == (200, "1")
        assert head.headers["content-type"].startswith("text/event-stream")
        for path in ("j" * 513, "order/*"):
            answer = await client.get(f"{base}/{path}")
            assert (answer.status_code, answer.headers["x-own"]) == (404, "1")
    with pytest.raises(ConfigurationError, match="takes a Gateway"):
        EventResponse(app, "job-1")
