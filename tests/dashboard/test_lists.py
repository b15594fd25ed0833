"""Lists: sorted, counted by label and scope, with the place of the store and links to traces."""

import html
import re

import pytest

from oncekey import ConfigurationError
from oncekey.dashboard import Dashboard
from oncekey.dashboard.views import ORDERS
from oncekey.messages import Inbox, Message
from oncekey.messages.dead_letters import dead_letters
from tests.dashboard.conftest import TOKEN, hidden, hold
from tests.dashboard.test_pages import NASTY
from tests.dashboard.test_roles import VIEW_TOKEN

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def filled(memory):
    for number in (2, 1, 3):
        view = memory.options(scope="billing", label=f"l{number % 2}")
        view.run(f"charge:{number}", lambda: "x" * number)  # noqa: B023 - it runs at once
    hold(memory, "report")
    return memory


def shown(text):
    found = re.findall(r'class="c-key"><a[^>]*>(.*?)</a>', text)
    return [html.unescape(re.sub("<[^>]*>", "", one)) for one in found]


async def test_the_list_is_sorted_by_any_column(filled, dashboard, inside):
    browser = await inside(dashboard(filled))
    charges = ["billing/charge:1", "billing/charge:2", "billing/charge:3"]
    for sort, expected in (
        ("key", ["report", *charges]),
        ("-key", [*reversed(charges), "report"]),
        ("-size", [*reversed(charges), "report"]),
        ("-created", ["report", charges[2], charges[0], charges[1]]),
    ):
        assert shown((await browser.get(f"/records?sort={sort}")).text) == expected
    for name in ORDERS:
        text = (await browser.get(f"/records?scope=billing&sort={name}")).text
        assert sorted(shown(text)) == charges
        assert text.count('aria-sort="ascending"') == 1
        assert f"/records?scope=billing&amp;sort=-{name}" in text
    assert (await browser.get("/records?sort=colour")).status_code == 400


async def test_a_part_that_is_sorted_says_that_there_is_more(
    filled, dashboard, inside, monkeypatch
):
    monkeypatch.setattr("oncekey.dashboard.pages._SORTED", 2)
    browser = await inside(dashboard(filled))
    text = (await browser.get("/records?sort=key")).text
    assert shown(text) == ["report", "billing/charge:3"]
    assert "These 2 are sorted among themselves, and there are more." in text
    assert "sorted among themselves" not in (await browser.get("/records?sort=key&key=rep")).text


async def test_records_are_counted_by_label_and_scope(somewhere, dashboard, inside):
    for number in range(3):
        somewhere.options(scope=NASTY, label="charge").run(f"k:{number}", lambda: 1)
    hold(somewhere, "held", scope="other")
    somewhere.run("bare", lambda: 1)
    text = (await (await inside(dashboard(somewhere))).get("/labels")).text
    assert "All 5 records, counted." in text
    counted = re.findall(r'data-name="Records">(\d+)<', text)
    assert sorted(counted) == ["1", "1", "1", "3", "4"]
    assert html.escape(NASTY, quote=False).replace("\"'", "&#34;&#39;") in text
    assert NASTY not in text


async def test_more_records_than_are_counted_are_not_called_all(memory, dashboard, inside):
    app = dashboard(memory)
    app._site.queries._breakdown._ask = lambda: break_down_few(memory.store)
    for number in range(5):
        memory.run(f"k:{number}", lambda: 1)
    text = (await (await inside(app)).get("/labels")).text
    assert "The newest 2 records, counted. There are more" in text


def break_down_few(store):
    from oncekey.inspection.listing import break_down

    return break_down(store, most=2, seconds=60)


async def test_the_page_says_which_store_it_shows(store_url, once, dashboard, inside):
    text = (await (await inside(dashboard(once))).get("/")).text
    foot = text.partition('<footer class="foot">')[2]
    place = store_url.partition("://")[2]
    said = {"sqlite": place[1:], "redis": place, "postgresql": place.partition("@")[2]}
    assert said[store_url.partition(":")[0]].partition("?")[0] in foot


async def test_a_record_links_to_its_trace(memory, dashboard, inside):
    memory.options(reference=f"order 7 00-{TRACE}-b7ad6b7169203331-01").run("traced", lambda: 1)
    memory.options(reference=f"00-{TRACE}-<script>").run("odd", lambda: 1)
    url = "https://jaeger.example.com/trace/{trace}?a=1&b=2"
    browser = await inside(dashboard(memory, trace_url=url))
    text = (await browser.get("/record?at=traced")).text
    assert f'href="https://jaeger.example.com/trace/{TRACE}?a=1&amp;b=2"' in text
    assert "jaeger" not in (await browser.get("/record?at=odd")).text
    assert "jaeger" not in (await (await inside(dashboard(memory))).get("/record?at=traced")).text


@pytest.mark.parametrize(
    "url", ["javascript:alert({trace})", "https://x.example/", "/trace/{trace}", 7, "//x/{trace}"]
)
def test_no_other_address_is_taken_for_traces(memory, url):
    with pytest.raises(ConfigurationError, match="trace_url is an address"):
        Dashboard(memory, token=TOKEN, trace_url=url)


@pytest.fixture
def dead(tmp_path):
    """The URL of an inbox with one dead letter and one message that was processed."""
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    inbox = Inbox(url, "billing", max_attempts=1)
    inbox.mark_completed(inbox.mark_processing("done"))
    with (
        pytest.raises(ValueError, match="no such order"),
        inbox.leased(Message(id="m-1", body=b"{}")),
    ):
        raise ValueError("no such order")
    inbox.close()
    return url


async def test_dead_letters_are_listed_and_freed(memory, dashboard, inside, browse, dead):
    app = dashboard(memory, inbox=dead, show_results=True, view_token=VIEW_TOKEN)
    browser = await inside(app)
    text = (await browser.get("/dead-letters")).text
    assert "no such order" in text
    assert "m-1" in text
    assert "done" not in text.partition("<main")[2]
    form = hidden(text.partition("<main")[2])
    stale = await browser.post("/dead-letters/free", data=form | {"token": "1"})
    assert stale.status_code == 409
    viewer = browse(app)
    await viewer.post("/login", data={"token": VIEW_TOKEN})
    assert "Free" not in (await viewer.get("/dead-letters")).text
    [letter] = dead_letters(dead)
    assert letter.dead
    freed = await browser.post("/dead-letters/free", data=form)
    assert freed.status_code == 303
    [letter] = dead_letters(dead)
    assert not letter.dead
    assert (
        "is processed when it is delivered" in (await browser.get(freed.headers["location"])).text
    )
    assert "freed to run again by somebody at the dashboard" in (await browser.get("/audit")).text
    again = await browser.post("/dead-letters/free", data=form)
    assert again.status_code == 409


async def test_what_went_wrong_is_hidden_like_results(memory, dashboard, inside, dead):
    text = (await (await inside(dashboard(memory, inbox=dead))).get("/dead-letters")).text
    assert "m-1" in text
    assert "no such order" not in text


async def test_an_inbox_that_is_not_there_is_not_made(memory, dashboard, inside, tmp_path):
    path = tmp_path / "nothing.db"
    browser = await inside(dashboard(memory, inbox=f"sqlite:///{path}"))
    assert "has no inbox yet" in (await browser.get("/dead-letters")).text
    assert not path.exists()
    without = await inside(dashboard(memory))
    assert "Dead letters" not in (await without.get("/")).text
    assert (await without.get("/dead-letters")).status_code == 404
    form = hidden((await without.get("/")).text)
    assert (await without.post("/dead-letters/free", data=form)).status_code == 404
