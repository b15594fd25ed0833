"""Many records are resolved or forgotten with one decision, and a number that is typed."""

import re

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


async def picked(browser, *names, **fields):
    """Ticks these in the list, and presses the button. Returns the form and the answer."""
    text = (await browser.get("/records")).text
    boxes = dict(re.findall(r'name="(pick:[^"]*)" value="([^"]*)"', text))
    form = hidden(text) | {"query": "status=held"} | fields
    form |= {f"pick:{name}": boxes[f"pick:{name}"] for name in names}
    return form, await browser.post("/records/change", data=form)


async def test_those_that_are_ticked_are_resolved_after_a_number(memory, browser):
    chosen, asked = await picked(browser, "billing/charge:1", "billing/charge:2", how="retry")
    assert asked.status_code == 200
    assert "Resolve 2 records?" in asked.text
    form = chosen | hidden(asked.text) | {"reason": "an outage"}
    wrong = await browser.post("/records/change", data=form | {"confirmed": "3"})
    assert (wrong.status_code, statuses(memory)) == (409, ["held"] * 4)
    done = await browser.post("/records/change", data=form | {"confirmed": "2"})
    assert done.status_code == 303
    assert statuses(memory) == ["held", "released", "released", "held"]
    assert "Done, 2 records." in (await browser.get(done.headers["location"])).text
    assert {one.reason for one in read_audit(memory.store, 10)} == {"an outage"}


async def test_everything_that_matches_is_resolved(memory, browser):
    _, asked = await picked(browser, all="yes", how="result")
    assert "Resolve 4 records?" in asked.text
    said = {"all": "yes", "how": "result", "result": '"paid"', "confirmed": "4"}
    done = await browser.post("/records/change", data=hidden(asked.text) | said)
    assert done.status_code == 303
    assert statuses(memory) == ["completed"] * 4
    _, again = await picked(browser, "billing/charge:1", how="retry")
    assert again.status_code == 409


async def test_what_was_held_again_since_it_was_ticked_is_left_alone(memory, browser):
    """Its last attempt is another one: nobody has looked at how that ended."""
    chosen, asked = await picked(browser, "billing/charge:1", "billing/charge:2", how="retry")
    assert "Resolve 2 records?" in asked.text
    memory.resolve("charge:1", scope="billing", retry=True)
    hold(memory, "charge:1", scope="billing")
    form = chosen | hidden(asked.text) | {"confirmed": "2"}
    wrong = await browser.post("/records/change", data=form)
    assert (wrong.status_code, statuses(memory)) == (409, ["held"] * 4)
    assert "1 of those that you ticked has changed" in wrong.text
    await browser.post("/records/change", data=form | {"confirmed": "1"})
    assert statuses(memory) == ["held", "held", "released", "held"]


async def test_what_is_held_is_forgotten_only_by_force(memory, browser):
    chosen, asked = await picked(browser, "billing/charge:1", "done", how="forget")
    form = chosen | hidden(asked.text) | {"confirmed": "2"}
    done = await browser.post("/records/change", data=form)
    assert memory.get("done") is None
    assert statuses(memory) == ["held"] * 4
    assert "1 had changed, or needed more" in (await browser.get(done.headers["location"])).text


@pytest.mark.parametrize("fields", [{"how": "burn"}, {}])
async def test_nothing_else_is_done(memory, browser, fields):
    assert (await picked(browser, **fields))[1].status_code in (400, 409)
    assert statuses(memory) == ["held"] * 4


async def test_a_form_of_another_site_changes_nothing(memory, browser):
    form = {"how": "retry", "all": "yes", "confirmed": "4", "form": "forged"}
    assert (await browser.post("/records/change", data=form)).status_code == 403
    assert statuses(memory) == ["held"] * 4
