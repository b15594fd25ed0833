"""The page of examples/chain in a real Chromium: services are killed, and each order arrives once.

The pictures of the documentation are taken anew by
`PICTURES=docs/images pytest tests/system/browser/test_chain_page.py -k picture`.
"""

import os
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from examples.chain.chain import Chain
from examples.chain.site import Show, make_app
from tests.dashboard.server import serving
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.xdist_group("browser")

ORDERS = 8
STATUS = "#totals"

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture
def show(monkeypatch):
    """A chain that goes on until somebody has killed a service, however quick it is."""
    settled = Chain.settled
    monkeypatch.setattr(Chain, "settled", lambda one: any(one.kills.values()) and settled(one))
    with closing(Show(orders=ORDERS, pace=0.1, every=0)) as show:
        yield show


@pytest.fixture
def site(show):
    """The page. Tests ask for it first, so that theirs end before it does."""
    with serving(make_app(show)) as site:
        yield site


def play(page, site):
    """A chain from its first order to its last mail, with a service that a person kills."""
    page.goto(site)
    expect(page.locator(STATUS)).to_have_text("Nothing has been ordered yet.")
    page.get_by_role("button", name="Place").click()
    expect(page.locator("tr[data-order]").first).to_be_visible()
    page.get_by_role("button", name="Kill payments").click()
    expect(page.locator("#services li").nth(1)).to_contain_text("killed 1 time")
    expect(page.locator(f"{STATUS}[data-state=over]")).to_contain_text("0 lost, 0 doubled")
    expect(page.locator("tr[data-order]")).to_have_count(ORDERS)
    expect(page.locator("td.done")).to_have_count(2 * ORDERS)
    assert page.locator("td.doubled").count() == 0


def test_a_person_kills_a_service_and_each_order_arrives_once(site, page):
    play(page, site)


def test_without_scripts_it_works_by_reloading(site, new_context, show):
    page = new_context(java_script_enabled=False).new_page()
    page.goto(site)
    page.get_by_role("button", name="Place").click()
    expect(page.get_by_role("button", name="Kill mail")).to_be_visible()
    page.get_by_role("button", name="Kill mail").click()
    expect(page).to_have_url(f"{site}/")
    until(lambda: not show.moment.running)
    page.reload()
    expect(page.locator(STATUS)).to_contain_text("0 lost, 0 doubled")


@pytest.mark.parametrize("width", [390, 1000])
def test_a_picture_shows_no_more_than_fits(site, new_context, show, width):
    dark = {"color_scheme": "dark"} if width == 390 else {}
    page = new_context(viewport={"width": width, "height": 844}, **dark).new_page()
    play(page, site)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    if "PICTURES" in os.environ:
        name = "chain-phone-dark.png" if width == 390 else "chain.png"
        page.screenshot(path=Path(os.environ["PICTURES"], name), animations="disabled")
