"""What the doctor says, on the overview and on a page of its own."""

import re

import pytest

from oncekey import Once, StoreError
from oncekey.dashboard import queries
from oncekey.doctor import Finding
from tests.dashboard.conftest import HOLDING


@pytest.fixture
def asked(monkeypatch):
    """How often the doctor was asked; it finds something of everything."""
    asked: list[object] = []

    def examine(store: object) -> list[Finding]:
        asked.append(store)
        said = {"evidence": "seen=<here>", "fix": "do <this>"}
        return [
            Finding(check="a.b", severity="danger", meaning="<b>lost", **said),
            Finding(check="a.c", severity="warning", meaning="perhaps lost", **said),
            Finding(check="a.d", severity="fine", meaning="as it should be", evidence="x=1"),
        ]

    monkeypatch.setattr(queries, "examine", examine)
    return asked


async def test_findings_are_shown_the_worst_first(memory, dashboard, inside, asked):
    browser = await inside(dashboard(memory))
    text = (await browser.get("/doctor")).text
    pills = re.findall(r"<span class=\"pill tone-(\w+)\">(\w+)<", text)
    assert pills == [("failed", "danger"), ("held", "warning"), ("completed", "fine")]
    for words in ("&lt;b&gt;lost", "seen=&lt;here&gt;", "do &lt;this&gt;", "a.c", "x=1"):
        assert words in text
    assert asked == [memory.store]
    overview = (await browser.get("/")).text
    assert "&lt;b&gt;lost" in overview
    assert "x=1" not in overview


async def test_the_overview_asks_now_and_then_and_the_page_every_time(
    memory, dashboard, inside, asked
):
    browser = await inside(dashboard(memory))
    for _ in range(3):
        await browser.get("/")
    assert len(asked) == 1
    await browser.get("/doctor")
    assert len(asked) == 2


async def test_a_doctor_that_is_not_answered_does_not_take_the_overview_along(
    memory, dashboard, inside, monkeypatch
):
    def refuse(_):
        raise StoreError("CONFIG is <forbidden>", happened=False)

    monkeypatch.setattr(queries, "examine", refuse)
    browser = await inside(dashboard(memory))
    response = await browser.get("/")
    assert response.status_code == 200
    assert "could not be examined: CONFIG is &lt;forbidden&gt;" in response.text
    assert (await browser.get("/doctor")).status_code == 503


async def test_a_real_server_is_examined(another_redis, dashboard, inside):
    server = another_redis(maxmemory="100mb", **{"maxmemory-policy": "allkeys-lru"})
    once = Once(server.url, observers=(), policy=HOLDING)
    browser = await inside(dashboard(once))
    for page in ("/", "/doctor"):
        text = (await browser.get(page)).text
        assert "danger</span>" in text
    assert "allkeys-lru" in text
    once.close()
