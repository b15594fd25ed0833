"""Many records are resolved or forgotten with one decision, and a number that is typed."""

import pytest

from oncekey.inspection.listing import read_audit
from tests.dashboard.conftest import hidden, hold


@pytest.fixture
async def browser(memory, dashboard, inside):
    for number in range(4):
        hold(memory, f"charge:{number}", scope="billing")
    memory.run("done", lambda: 1)
    return await inside(dashboard(memory))


def statuses(once):
    return [once.get(f"charge:{number}", scope="billing").status for number in range(4)]


async def picked(browser, **fields):
    text = (await browser.get("/records?status=held")).text
    return await browser.post("/records/change", data={**hidden(text), **fields})


async def test_those_that_are_ticked_are_resolved_after_a_number(memory, browser):
    chosen = {"pick:billing/charge:1": "yes", "pick:billing/charge:2": "yes", "how": "retry"}
    asked = await picked(browser, **chosen)
    assert asked.status_code == 200
    assert "Resolve 2 records?" in asked.text
    form = hidden(asked.text) | chosen | {"reason": "an outage"}
    wrong = await browser.post("/records/change", data=form | {"confirmed": "3"})
    assert (wrong.status_code, statuses(memory)) == (409, ["held"] * 4)
    done = await browser.post("/records/change", data=form | {"confirmed": "2"})
    assert done.status_code == 303
    assert statuses(memory) == ["held", "released", "released", "held"]
    assert "Done, 2 records." in (await browser.get(done.headers["location"])).text
    assert {one.reason for one in read_audit(memory.store, 10)} == {"an outage"}


async def test_everything_that_matches_is_resolved(memory, browser):
    asked = await picked(browser, all="yes", how="result")
    assert "Resolve 4 records?" in asked.text
    said = {"all": "yes", "how": "result", "result": '"paid"', "confirmed": "4"}
    done = await browser.post("/records/change", data=hidden(asked.text) | said)
    assert done.status_code == 303
    assert statuses(memory) == ["completed"] * 4
    again = await picked(browser, how="retry", **{"pick:billing/charge:1": "yes"})
    assert again.status_code == 409


async def test_what_is_held_is_forgotten_only_by_force(memory, browser):
    chosen = {"pick:billing/charge:1": "yes", "pick:done": "yes", "how": "forget"}
    asked = await picked(browser, **chosen)
    form = hidden(asked.text) | chosen | {"confirmed": "2"}
    done = await browser.post("/records/change", data=form)
    assert memory.get("done") is None
    assert statuses(memory) == ["held"] * 4
    assert "1 had changed, or needed more" in (await browser.get(done.headers["location"])).text


@pytest.mark.parametrize("fields", [{"how": "burn"}, {}])
async def test_nothing_else_is_done(memory, browser, fields):
    assert (await picked(browser, **fields)).status_code in (400, 409)
    assert statuses(memory) == ["held"] * 4


async def test_a_form_of_another_site_changes_nothing(memory, browser):
    form = {"how": "retry", "all": "yes", "confirmed": "4", "form": "forged"}
    assert (await browser.post("/records/change", data=form)).status_code == 403
    assert statuses(memory) == ["held"] * 4
