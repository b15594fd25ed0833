"""What is shown, on every store."""

import html
import re
from datetime import timedelta
from itertools import product
from urllib.parse import quote

import pytest

from oncekey.dashboard import Dashboard
from oncekey.inspection.actions import state_of
from oncekey.inspection.listing import time_of
from tests.dashboard.conftest import TOKEN, hidden, hold

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
CONTROLS = "\x1b[31mred\x07\u202egnp.exe"


class DeclinedError(Exception):
    pass


@pytest.fixture
def filled(once):
    billing = once.options(scope="billing", label="charge")
    for number in range(3):
        billing.run(f"charge:{number}", lambda: {"paid": True})
    once.options(label="report").run("report:1", lambda: None)
    hold(once, "charge:9", scope="billing")
    with pytest.raises(DeclinedError):
        billing.options(keep=DeclinedError).run("charge:8", decline)
    return once


def decline():
    raise DeclinedError("no funds")


def keys(text: str) -> list[str]:
    found = re.findall(r'class="c-key"><a[^>]*>(.*?)</a>', text)
    return sorted(html.unescape(re.sub("<[^>]*>", "", one)) for one in found)


async def test_the_overview_counts_and_names_what_needs_a_person(filled, dashboard, inside):
    text = (await (await inside(dashboard(filled))).get("/")).text
    for status, number in (("completed", 4), ("failed", 1), ("held", 1), ("running", 0)):
        assert f'data-text="status-{status}">{number}<' in text
    held = text.partition("Needs a person")[2].partition("</section>")[0]
    assert "charge:9" in held
    assert len(keys(text)) == 6


SEARCHES = {
    "key=charge:2": ["billing/charge:2"],
    "key=report": ["report:1"],
    "status=held": ["billing/charge:9"],
    "status=failed": ["billing/charge:8"],
    "scope=-": ["report:1"],
    "scope=billing&status=completed": [f"billing/charge:{n}" for n in range(3)],
    "label=report": ["report:1"],
    "age=1h&label=report": ["report:1"],
    "age=over-1d": [],
    "key=nothing": [],
}


async def test_a_running_record_whose_lease_is_over_is_lapsed(once, dashboard, inside):
    with once.options(lease=timedelta(milliseconds=100)).attempt("gone"):
        gone = once.get("gone")
        while time_of(once.store) < gone.lease_end:
            pass
        browser = await inside(dashboard(once))
        pages = [
            (await browser.get(address)).text
            for address in ("/", "/records", "/record?at=gone", "/record/forget?at=gone")
        ]
        assert 'data-text="lapsed">1 lapsed</span>' in pages[0]
        assert all('<span class="pill tone-lapsed">lapsed</span>' in page for page in pages)
        proof = hidden(pages[1])
        form = {"form": proof["form"], "how": "forget", "pick:gone": state_of(gone)}
        asked = (await browser.post("/records/change", data=form)).text
        assert '<span class="pill tone-lapsed">lapsed</span>' in asked


async def test_the_list_is_searched(filled, dashboard, inside):
    browser = await inside(dashboard(filled))
    assert len(keys((await browser.get("/records")).text)) == 6
    for query, found in SEARCHES.items():
        response = await browser.get(f"/records?{query}")
        assert (response.status_code, keys(response.text)) == (200, found), query
        assert ("No record is like that" in response.text) is (found == [])


async def test_the_list_comes_in_pages(quick, dashboard, inside):
    for number in range(120):
        quick.run(f"k-{number:03}", lambda: None)
    browser = await inside(dashboard(quick))
    seen: list[str] = []
    address = "/records?key=k-"
    for _ in range(50):
        text = (await browser.get(address)).text
        seen += keys(text)
        link = re.search(r'class="button" href="([^"]+)">(?:Older|More)<', text)
        if link is None:
            break
        address = html.unescape(link[1])
    assert sorted(seen) == [f"k-{number:03}" for number in range(120)]
    assert "Back to the start" in text


async def test_what_cannot_be_asked_is_said(filled, dashboard, inside):
    browser = await inside(dashboard(filled))
    for query in ("status=lost", "age=1y", "after=nonsense!", "key=%00", "label=%00"):
        response = await browser.get(f"/records?{query}")
        assert response.status_code == 400
        assert "Traceback" not in response.text


async def test_a_record_and_its_life(filled, dashboard, inside):
    browser = await inside(dashboard(filled))
    held = (await browser.get("/record?at=billing/charge:9")).text
    for words in ("Claimed, attempt 1 started", "Ended without a definite", "Never forgotten"):
        assert words in held
    done = (await browser.get("/record?at=billing/charge:1")).text
    for words in ("Completed", "Forgotten by itself", "gets the result without running"):
        assert words in done


async def test_results_notes_and_errors_are_hidden_unless_somebody_said_so(filled, inside):
    secrets = {
        "/record?at=billing/charge:1": ["&#34;paid&#34;: true"],
        "/record?at=billing/charge:8": ["no funds"],
        "/record?at=billing/charge:9": ["the bank did not answer", "req-77", "reserve"],
    }
    hidden = await inside(Dashboard(filled, token=TOKEN))
    shown = await inside(Dashboard(filled, token=TOKEN, show_results=True))
    for path, words in secrets.items():
        for word in words:
            assert word not in (await hidden.get(path)).text
            assert word in (await shown.get(path)).text
        assert "hidden" in (await hidden.get(path)).text
    for path in ("/", "/records", "/records?status=held"):
        text = (await shown.get(path)).text
        assert not [word for words in secrets.values() for word in words[:2] if word in text]


async def test_what_is_not_there_is_not_there(filled, dashboard, inside):
    browser = await inside(dashboard(filled))
    places = ("nothing", "billing/nothing", "no/charge:1", "", "/", "a/b/c", "%00", "x" * 300)
    for path, at in product(("/record", "/record/forget"), places):
        response = await browser.get(path, params={"at": at})
        assert response.status_code == 404
        assert "There is no record" in response.text


async def test_whatever_is_stored_is_shown_and_never_obeyed(once, dashboard, inside):
    key = "<script>alert(1)</script>\"'&"
    view = once.options(scope="<b>scope", label=NASTY + CONTROLS, reference=NASTY)
    view.run(key, lambda: {NASTY: CONTROLS + "\0"})
    with pytest.raises(TimeoutError), view.attempt("held") as attempt:
        attempt.note(**{NASTY: CONTROLS})
        attempt.step(NASTY, lambda: 1)
        raise TimeoutError(NASTY + CONTROLS)
    browser = await inside(dashboard(once, show_results=True))
    paths = ["/", "/records", "/records?status=held"]
    listed = (await browser.get("/records")).text
    found = [html.unescape(one) for one in re.findall(r'href="(/record\?[^"]+)"', listed)]
    assert len(found) == 2
    texts = [(await browser.get(path)).text for path in [*paths, *found]]
    for text in texts:
        assert "<script>" not in text
        assert "<img" not in text
        assert "<b>" not in text
        assert not set(text) & set("\x1b\x07\u202e\x00")
        assert "&lt;script&gt;" in text
    held = next(text for path, text in zip(found, texts[3:], strict=True) if "held" in path)
    assert '<span class="escape">\\x1b</span>' in held
    assert '<span class="escape">\\u202e</span>' in held


@pytest.mark.parametrize("query", ["key", "scope", "label", "after", "status", "at", "done"])
async def test_what_somebody_puts_into_an_address_is_not_obeyed_either(
    memory, dashboard, inside, query
):
    browser = await inside(dashboard(memory))
    for path in ("/records", "/record"):
        text = (await browser.get(path, params={query: NASTY + CONTROLS})).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert not set(text) & set("\x1b\x07\u202e\x00")


async def test_a_long_result_is_cut(memory, dashboard, inside):
    memory.run("long", lambda: "x" * 100_000)
    text = (await (await inside(dashboard(memory, show_results=True))).get("/record?at=long")).text
    assert "more characters)" in text
    assert len(text) < 50_000


async def test_what_json_does_not_know_is_written_as_python_does(memory, dashboard, inside):
    memory.run("odd", lambda: {(1, 2): b"bytes"})
    text = (await (await inside(dashboard(memory, show_results=True))).get("/record?at=odd")).text
    assert "(1, 2)" in text


@pytest.mark.parametrize("typed", ["billing/charge:1043", " billing/charge:1043 ", "alone"])
async def test_a_key_that_was_pasted_is_found(memory, dashboard, inside, typed):
    memory.options(scope="billing").run("charge:1043", lambda: 1)
    memory.options(scope="billing").run("charge:10431", lambda: 1)
    memory.run("alone", lambda: 1)
    memory.run("alone-2", lambda: 1)
    browser = await inside(dashboard(memory))
    found = await browser.get("/records", params={"key": typed})
    assert found.status_code == 303
    assert found.headers["location"].endswith(f"?at={quote(typed.strip(), safe='')}")
    page = await browser.get(found.headers["location"])
    assert page.status_code == 200


async def test_every_name_on_a_page_can_be_pasted(memory, dashboard, inside):
    memory.options(scope="a/b").run("50%/c", lambda: 1)
    browser = await inside(dashboard(memory))
    listed = (await browser.get("/records")).text
    name = re.sub("<[^>]+>", "", re.search('<td role="cell" class="c-key">(.*?)</td>', listed)[1])
    assert name == "a%2Fb/50%25%2Fc"
    found = await browser.get("/records", params={"key": name})
    assert found.status_code == 303
    headed = (await browser.get(found.headers["location"])).text
    assert re.sub("<[^>]+>", "", re.search("<h1[^>]*>(.*?)</h1>", headed)[1]) == name


async def test_the_beginning_of_a_key_in_a_scope_is_searched(memory, dashboard, inside):
    memory.options(scope="billing").run("charge:1043", lambda: 1)
    memory.options(scope="other").run("charge:1044", lambda: 1)
    browser = await inside(dashboard(memory))
    found = (await browser.get("/records", params={"key": "billing/charge:10"})).text
    assert "charge:1043" in found
    assert "charge:1044" not in found
    assert (await browser.get("/records", params={"key": "//\x01"})).status_code == 200
