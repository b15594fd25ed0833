"""What a person may do to a record, on every store: after being asked, to what they looked at."""

import pytest

from oncekey import Once, Policy, RememberedError
from oncekey.core.requests import Claim
from tests.dashboard.conftest import hidden, hold

RECORD = "/record?at=billing/charge:9"
ASK = "/record/forget?at=billing/charge:9"
RESOLVE = "/record/resolve"
FORGET = "/record/forget"
HOUR = 3_600_000_000


@pytest.fixture
def held(somewhere):
    hold(somewhere, "charge:9", scope="billing")
    return somewhere


@pytest.fixture
async def browser(held, dashboard, inside):
    return await inside(dashboard(held))


def record(once: Once):
    return once.get("charge:9", scope="billing")


def resolving(text: str) -> dict[str, str]:
    """The hidden fields of the form that resolves."""
    return hidden(text.partition("Forget it</h2>")[0].partition("Facts</h2>")[0])


async def resolved(browser, **said: str):
    """What the dashboard answers to somebody who says so, and again that they mean it."""
    form = resolving((await browser.get(RECORD)).text)
    asked = await browser.post(RESOLVE, data={**form, **said})
    assert asked.status_code == 200
    return await browser.post(RESOLVE, data=hidden(asked.text))


async def test_it_was_done(once, dashboard, inside):
    hold(once, "charge:9", scope="billing")
    browser = await inside(dashboard(once))
    form = resolving((await browser.get(RECORD)).text)
    said = {"ending": "result", "result": '{"id": "pay-<9>"}', "error": "", **form}
    asked = await browser.post(RESOLVE, data=said)
    assert "pay-&lt;9&gt;" in asked.text
    assert record(once).status == "held"  # nobody has said that they mean it
    done = await browser.post(RESOLVE, data=hidden(asked.text))
    assert done.status_code == 303
    assert record(once).status == "completed"
    assert record(once).value == {"id": "pay-<9>"}
    view = once.options(scope="billing", fingerprint=None)
    assert view.run("charge:9", lambda: 1) == {"id": "pay-<9>"}
    page = await browser.get(done.headers["location"])
    assert "The record ended as you said" in page.text


async def test_it_failed_for_good(held, browser):
    assert (await resolved(browser, ending="error", error="refunded <b>")).status_code == 303
    assert record(held).status == "failed"
    with pytest.raises(RememberedError, match="refunded <b>"):
        held.options(scope="billing", fingerprint=None).run("charge:9", lambda: 1)


async def test_it_was_not_done(held, browser):
    assert (await resolved(browser, ending="retry")).status_code == 303
    assert record(held).status == "released"
    assert record(held).notes == {"request": "req-77"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "Say how it ended"),
        ({"ending": "forget"}, "Say how it ended"),
        ({"ending": "result", "result": "{oops"}, "not JSON"),
        ({"ending": "result", "result": ""}, "not JSON"),
        ({"ending": "result", "result": str(10**30)}, "cannot be kept"),
        ({"ending": "error", "error": "  "}, "in some words"),
    ],
)
async def test_what_cannot_be_meant_is_said_and_nothing_is_lost(
    memory, dashboard, inside, said, words
):
    hold(memory, "charge:9", scope="billing")
    browser = await inside(dashboard(memory))
    form = resolving((await browser.get(RECORD)).text)
    response = await browser.post(RESOLVE, data={**form, **said, "confirmed": "yes"})
    assert response.status_code == 400
    assert words in response.text
    assert said.get("result", "") in response.text  # what was typed is still there
    assert record(memory).status == "held"


async def test_a_record_that_has_changed_since_is_left_alone(held, browser):
    form = resolving((await browser.get(RECORD)).text)
    forgetting = await browser.form(ASK)
    held.resolve("charge:9", scope="billing", retry=True)
    for action, said in (
        (RESOLVE, {**form, "ending": "retry", "confirmed": "yes"}),
        (FORGET, {**forgetting, "force": "yes"}),
    ):
        response = await browser.post(action, data=said)
        assert response.status_code == 409
        assert "has changed in the meantime" in response.text
    assert record(held).status == "released"


@pytest.mark.parametrize("action", [FORGET, RESOLVE])
async def test_a_record_that_changes_in_that_very_moment_is_left_alone(
    memory, dashboard, inside, monkeypatch, action
):
    hold(memory, "charge:9", scope="billing")
    browser = await inside(dashboard(memory))
    form = await browser.form(ASK)
    for verb in ("forget", "resolve"):
        monkeypatch.setattr(memory, verb, lambda *_, **__: False)
    said = {**form, "ending": "retry", "confirmed": "yes", "force": "yes"}
    response = await browser.post(action, data=said)
    assert response.status_code == 409
    assert "has changed in the meantime" in response.text


async def test_a_record_that_is_gone_since_is_not_there(held, browser):
    form = resolving((await browser.get(RECORD)).text)
    held.forget("charge:9", scope="billing", force=True)
    response = await browser.post(RESOLVE, data={**form, "ending": "retry", "confirmed": "yes"})
    assert response.status_code == 404


async def test_what_is_not_held_cannot_be_resolved(memory, dashboard, inside):
    memory.run("k-1", lambda: 1)
    browser = await inside(dashboard(memory))
    page = await browser.get("/record?at=k-1")
    assert "Say how it ended" not in page.text
    form = await browser.form("/record/forget?at=k-1")
    response = await browser.post(RESOLVE, data={**form, "ending": "retry", "confirmed": "yes"})
    assert response.status_code == 409
    assert "there is nothing to resolve" in response.text


async def test_a_settled_record_is_forgotten(once, dashboard, inside):
    once.run("k-1", lambda: 1)
    browser = await inside(dashboard(once))
    asked = await browser.get("/record/forget?at=k-1")
    assert "Forget this key?" in asked.text
    assert once.get("k-1") is not None
    done = await browser.post(FORGET, data=hidden(asked.text))
    assert done.status_code == 303
    assert once.get("k-1") is None
    assert "The key is forgotten" in (await browser.get(done.headers["location"])).text
    assert once.run("k-1", lambda: 2) == 2  # the cache of this process has forgotten it too


async def test_a_held_record_is_only_forgotten_by_who_insists(held, browser):
    form = await browser.form(ASK)
    response = await browser.post(FORGET, data=form)
    assert response.status_code == 409
    assert "It is held" in response.text
    assert record(held) is not None
    assert (await browser.post(FORGET, data={**form, "force": "yes"})).status_code == 303
    assert record(held) is None


async def test_a_running_record_is_only_forgotten_by_who_insists(somewhere, dashboard, inside):
    somewhere.store.claim(
        Claim(None, "k-1", nonce="n", fingerprint=None, lease=HOUR, ttl=HOUR, label="charge")
    )
    browser = await inside(dashboard(somewhere))
    asked = await browser.get("/record/forget?at=k-1")
    assert "An attempt may be at work right now" in asked.text
    assert (await browser.post(FORGET, data=hidden(asked.text))).status_code == 409
    said = {**hidden(asked.text), "force": "yes"}
    assert (await browser.post(FORGET, data=said)).status_code == 303
    assert somewhere.get("k-1") is None


async def test_the_words_for_every_status(memory, dashboard, inside):
    view = memory.options(policy=Policy(on_error="release", heartbeat=False))
    with pytest.raises(ValueError, match="no"), view.attempt("free") as attempt:
        attempt.note(row=17)
        raise ValueError("no")
    memory.store.claim(
        Claim(None, "late", nonce="n", fingerprint=None, lease=1, ttl=HOUR, label="charge")
    )
    memory.run("unkept", lambda: {1, object()})
    browser = await inside(dashboard(memory))
    for key, words in {
        "free": "The next call runs, and finds what was noted.",
        "late": "has not renewed its lease",
        "unkept": "its result was not kept",
    }.items():
        assert words in (await browser.get(f"/record?at={key}")).text
    late = (await browser.get("/record?at=late")).text
    assert "Lease ended, and nobody renewed it" in late
    assert "What was noted is lost" in (await browser.get("/record/forget?at=free")).text
