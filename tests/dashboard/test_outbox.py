"""The outbox on the dashboard: what waits, what is dead, and what is decided about it."""

import sqlite3
from contextlib import closing
from urllib.parse import quote

import pytest

from oncekey import ConfigurationError
from oncekey.dashboard import Dashboard
from oncekey.inspection.listing import read_audit
from oncekey.outbox import AsyncRelay, Message, Outbox, Relay
from oncekey.outbox.targets import MessageRefusedError
from tests.dashboard.conftest import TOKEN, hidden

VIEW_TOKEN = f"{TOKEN} or look"
LETTER = "/outbox/letter?id=m-1"


@pytest.fixture
def url(tmp_path):
    """The URL of an outbox with two dead letters, one of which may have arrived, and what waits."""
    path = tmp_path / "shop.db"
    url = f"sqlite:///{path}"
    outbox = Outbox(url)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for name, key in (("m-1", "7"), ("m-2", "7"), ("m-3", None), ("m-4", None)):
            message = Message(id=name, type="paid", body={"order": name}, attributes={"tenant": 1})
            outbox.put(connection, message, to="orders.paid", key=key)
        connection.execute("COMMIT")
    wrong = {"m-1": ValueError("no such tenant"), "m-3": MessageRefusedError("no")}

    def refuse(message):
        raise wrong.get(message.id, ConnectionError("away"))

    relay = Relay(url, refuse, max_tries=1)
    relay.drain()
    relay.close()
    outbox.close()
    return url


async def relayed(url, target, **options):
    """Sends what may be sent now."""
    relay = AsyncRelay(url, target, **options)
    await relay.drain()
    await relay.aclose()


async def sent(url):
    """Sends what may be sent now; what that was."""
    found = []
    await relayed(url, found.append)
    return [(one.id, one.to, one.body.decode()) for one in found]


def letters(url):
    outbox = Outbox(url)
    found = outbox.dead_letters()
    outbox.close()
    return found


async def asked(browser, how, page=LETTER, **typed):
    """The page that asks again, and its form."""
    form = await browser.form(page)
    answer = await browser.post("/outbox/decide", data=form | {"how": how} | typed)
    return answer, hidden(answer.text) | typed


async def test_what_waits_and_what_is_dead_is_shown(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url, show_results=True))
    text = (await browser.get("/outbox")).text.partition("<main")[2]
    for name in ("m-1", "m-2", "m-3", "m-4"):
        assert name in text
    assert "ValueError: no such tenant" in text
    assert "ConnectionError: away" in text
    assert text.count("may have arrived") == 1
    letter = (await browser.get(LETTER)).text
    assert "ValueError: no such tenant" in letter
    assert "tenant: 1" in letter
    assert "{&#34;order&#34;:&#34;m-1&#34;}" in letter
    assert "the target may have it" in letter
    assert "certainly not taken it" in (await browser.get("/outbox/letter?id=m-3")).text
    assert "oncekey_outbox_messages{status=&#34;dead&#34;} 2" not in letter
    metrics = (await browser.get("/metrics")).text
    assert 'oncekey_outbox_messages{status="dead"} 2' in metrics


async def test_bodies_and_errors_are_hidden_like_results(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url))
    for page in ("/outbox", LETTER):
        text = (await browser.get(page)).text
        assert "m-1" in text
        assert "tenant: 1" not in text
        assert "no such tenant" not in text
        assert "order&#34;" not in text
    assert "edit-body" not in (await browser.get(LETTER)).text


async def test_a_letter_is_revived_after_a_question(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url))
    answer, form = await asked(browser, "revive")
    assert "Try it again?" in answer.text
    assert len(letters(url)) == 2  # it was only asked
    done = await browser.post("/outbox/decide", data=form | {"reason": "tenant made"})
    assert (done.status_code, done.headers["location"]) == (303, "/outbox?done=revive")
    assert "Relays try the message again" in (await browser.get(done.headers["location"])).text
    (entry,) = read_audit(memory.store, 10)
    assert (entry.scope, entry.key, entry.became) == ("orders.paid", "m-1", "revived")
    assert entry.reason == "tenant made"
    assert ("m-1", "orders.paid", '{"order":"m-1"}') in await sent(url)
    again = await browser.post("/outbox/decide", data=form)
    assert again.status_code == 404


async def test_a_letter_is_edited_and_gets_a_new_id(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url, show_results=True))
    body = '{"order":\r\n"mended"}'
    answer, form = await asked(browser, "edit", to="orders.mended", type="paid", body=body)
    assert "consumers get both" in answer.text
    assert "{&#34;order&#34;:\n&#34;mended&#34;}" in answer.text
    await browser.post("/outbox/decide", data=form)
    found = await sent(url)
    (new,) = [name for name, to, _ in found if to == "orders.mended"]
    assert new not in ("m-1", "")
    assert (new, "orders.mended", '{"order":\n"mended"}') in found
    (entry,) = read_audit(memory.store, 10)
    assert entry.became == f"edited, and sent as {new}"
    certain, form = await asked(browser, "edit", "/outbox/letter?id=m-3", to="elsewhere", type="")
    assert "consumers get both" not in certain.text
    await browser.post("/outbox/decide", data=form)
    assert ("elsewhere", '{"order":"m-3"}') in [one[1:] for one in await sent(url)]


async def test_what_cannot_be_sent_is_said_beside_what_was_typed(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url))
    _, form = await asked(browser, "edit", to="two words", type="paid")
    answer = await browser.post("/outbox/decide", data=form)
    assert answer.status_code == 400
    assert "a destination has no blanks" in answer.text
    assert 'value="two words"' in answer.text
    assert len(letters(url)) == 2


async def test_a_letter_is_dropped_and_those_behind_it_are_sent(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url))
    answer, form = await asked(browser, "drop")
    assert "The messages behind it with the key" in answer.text
    await browser.post("/outbox/decide", data=form)
    assert [one.message.id for one in letters(url)] == ["m-3"]
    assert "m-2" in {one[0] for one in await sent(url)}


async def test_nothing_is_done_to_what_has_changed(memory, dashboard, inside, url):
    browser = await inside(dashboard(memory, outbox=url))
    _, form = await asked(browser, "drop")
    outbox = Outbox(url)
    assert outbox.revive(outbox.dead_letters("m-1")[0])

    def refuse(message):
        raise ValueError("again")

    await relayed(url, refuse, max_tries=1)
    outbox.close()
    answer = await browser.post("/outbox/decide", data=form)
    assert answer.status_code == 409
    assert "m-1" in {one.message.id for one in letters(url)}
    assert (await browser.post("/outbox/decide", data=form | {"id": "m-9"})).status_code == 404
    wrong = await browser.form(LETTER)
    assert (await browser.post("/outbox/decide", data=wrong | {"how": "x"})).status_code == 400


async def test_a_viewer_decides_nothing(memory, dashboard, inside, browse, url):
    app = dashboard(memory, outbox=url, view_token=VIEW_TOKEN)
    operator, viewer = await inside(app), browse(app)
    await viewer.post("/login", data={"token": VIEW_TOKEN})
    form = await operator.form(LETTER)
    text = (await viewer.get(LETTER)).text
    assert "Decide" not in text
    form["form"] = hidden(text)["form"]
    said = form | {"how": "drop", "confirmed": "yes"}
    assert (await viewer.post("/outbox/decide", data=said)).status_code == 403
    assert len(letters(url)) == 2


async def test_an_outbox_that_is_not_there_is_not_made(memory, dashboard, inside, tmp_path):
    path = tmp_path / "nothing.db"
    browser = await inside(dashboard(memory, outbox=f"sqlite:///{path}"))
    assert "has no outbox yet" in (await browser.get("/outbox")).text
    assert (await browser.get(LETTER)).status_code == 404
    assert not path.exists()
    without = await inside(dashboard(memory))
    assert 'href="/outbox"' not in (await without.get("/")).text
    assert (await without.get("/outbox")).status_code == 404
    with pytest.raises(ConfigurationError, match="an outbox needs"):
        Dashboard(memory, token=TOKEN, outbox="redis://localhost")


async def test_names_of_messages_are_no_markup(memory, dashboard, inside, tmp_path):
    nasty = '"><script>alert(1)</script>'
    url = f"sqlite:///{tmp_path / 'nasty.db'}"
    outbox = Outbox(url)
    with closing(sqlite3.connect(tmp_path / "nasty.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        outbox.put(connection, Message(id=nasty, type=nasty, body=nasty), to="orders", key=nasty)
        connection.execute("COMMIT")

    def refuse(message):
        raise ValueError(nasty)

    await relayed(url, refuse, max_tries=1)
    outbox.close()
    browser = await inside(dashboard(memory, outbox=url, show_results=True))
    page = f"/outbox/letter?id={quote(nasty)}"
    answer, _ = await asked(browser, "edit", page, to=nasty.replace(" ", ""), type=nasty)
    for text in ((await browser.get("/outbox")).text, (await browser.get(page)).text, answer.text):
        assert "alert(1)" in text
        assert "<script>alert" not in text
