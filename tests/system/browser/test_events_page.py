"""The page of examples/events in a real Chromium: whatever happens on the way, it ends complete.

The pictures of the documentation are taken anew by
`PICTURES=docs/images pytest tests/system/browser/test_events_page.py -k picture`.
"""

import os
import re
import signal
from pathlib import Path

import pytest
from playwright.sync_api import expect

from examples.events.job import TOTAL, events
from oncekey.events import Memory, Stages
from tests.patience import PATIENCE
from tests.processes.child_processes import Worker
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.system.browser.site import Site

__all__ = ["empty_redis", "redis_server"]

pytestmark = pytest.mark.xdist_group("browser")

JOB = "9f3c21aa"
WORDS = [draft.data["text"] for draft in events(JOB)]
SEQS = [f"{one.stage} {Stages().seq_of(one.stage, seq=None, step=one.step)}" for one in events(JOB)]

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def site(memory):
    with Site(memory) as site:
        yield site


@pytest.fixture
def lines(site, page):
    """How many events the page shows: an assertion that waits."""

    def lines(count):
        expect(page.locator("#log li")).to_have_count(count)

    return lines


@pytest.fixture
def failing(complaints):
    """The browser itself complains of requests without a network; nothing else may."""
    yield
    complaints[:] = [one for one in complaints if "Failed to load resource" not in one]


def status(page, *known):
    expect(page.locator("#status")).to_have_attribute("data-status", re.compile("|".join(known)))


def complete(page):
    status(page, "complete")
    expect(page.locator("#log .text")).to_have_text(WORDS)
    expect(page.locator("#log .stage")).to_have_text(SEQS)
    expect(page.locator("#log .offset")).to_have_text([str(n + 1) for n in range(TOTAL)])
    expect(page.locator("#tally")).to_have_text(f"{TOTAL} of {TOTAL}, each once, in order")
    expect(page.locator("#percent")).to_have_text("100 %")
    expect(page.locator("#stages [data-state=done]")).to_have_count(5)
    expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.row("E5", "E7")
def test_reloaded_and_offline_on_the_way_it_ends_complete(site, page, context, lines, failing):
    site.publish(JOB, 1, 3)
    page.goto(site.job(JOB))
    lines(3)
    status(page, "live")
    site.publish(JOB, 4, 5)
    lines(5)
    page.reload()
    lines(5)
    site.publish(JOB, 6, 7)
    lines(7)
    status(page, "live")
    context.set_offline(True)
    status(page, "offline")
    site.publish(JOB, 8, 10)
    context.set_offline(False)
    lines(10)
    status(page, "live")
    page.locator("#cut").click()
    status(page, "closed")
    site.publish(JOB, 11, 12)
    page.locator("#cut").click()
    lines(12)
    site.publish(JOB, 13, TOTAL)
    complete(page)
    page.reload()
    complete(page)


@pytest.mark.row("E5", "E7")
def test_a_router_that_is_killed_costs_nothing(empty_redis, page, failing):
    def router():
        worker = Worker("tests.events.router_worker", empty_redis.url, "30s")
        worker.until("ready")
        return worker

    first = router()
    with Site(empty_redis.url) as site:
        site.publish(JOB, 1, 4)
        page.goto(site.job(JOB))
        site.publish(JOB, 5, 6)
        expect(page.locator("#log li")).to_have_count(6)
        first.signal(signal.SIGKILL)
        assert first.process.wait(PATIENCE) == -signal.SIGKILL
        first.process.communicate()
        site.publish(JOB, 7, 10)
        page.reload()
        expect(page.locator("#log li")).to_have_count(10)
        second = router()
        site.publish(JOB, 11, TOTAL)
        complete(page)
        second.signal(signal.SIGTERM)
        second.output()
        page.close()


@pytest.mark.row("E7")
def test_a_server_that_ends_and_comes_back_is_found_again(memory, page, failing):
    with Site(memory) as site:
        site.publish(JOB, 1, 3)
        page.goto(site.job(JOB))
        status(page, "live")
    status(page, "waiting")
    with Site(memory, site.port) as again:
        again.publish(JOB, 4, TOTAL)
        complete(page)


def test_a_log_that_was_lost_is_told_and_shown_anew(site, memory, page, lines):
    site.publish(JOB, 1, 6)
    page.goto(site.job(JOB))
    lines(6)
    status(page, "live")
    with memory.lock:
        memory.jobs.clear()
    site.publish(JOB, 1, 2)
    expect(page.locator("#notice")).to_contain_text("(epoch)")
    expect(page.locator("#log .text")).to_have_text(WORDS[:2])
    expect(page.locator("#stages [data-state=done]")).to_have_count(0)


def test_a_job_is_started_with_a_button_and_ends_by_itself(site, page):
    page.goto(site.url)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs/[0-9a-f]{8}$"))
    status(page, "live")


def test_the_keyboard_is_enough(site, page):
    site.publish(JOB, 1, 2)
    page.goto(site.job(JOB))
    status(page, "live")
    page.locator("#cut").focus()
    page.keyboard.press("Enter")
    status(page, "closed")
    page.keyboard.press("Space")
    status(page, "live")
    expect(page.locator("#cut")).to_be_focused()


def test_without_scripts_it_shows_what_had_happened(site, new_context):
    site.publish(JOB, 1, 6)
    page = new_context(java_script_enabled=False).new_page()
    page.goto(site.job(JOB))
    expect(page.locator("#log .text")).to_have_text(WORDS[:6])
    expect(page.locator("#percent")).to_have_text("40 %")


def test_it_fits_on_every_screen(site, new_context):
    site.publish(JOB, 1, 9)
    page = new_context(bypass_csp=True).new_page()
    page.goto(site.job(JOB))
    status(page, "live")
    for width in (320, 390, 1280):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


PICTURES: dict[str, tuple[int, dict[str, object]]] = {
    "events": (9, {"viewport": {"width": 900, "height": 760}}),
    "events-phone": (5, {"viewport": {"width": 390, "height": 900}, "color_scheme": "dark"}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture(site, new_context, tmp_path, name):
    count, options = PICTURES[name]
    site.publish(JOB, 1, count)
    page = new_context(reduced_motion="reduce", **options).new_page()
    page.goto(site.job(JOB))
    status(page, "live")
    picture = Path(os.environ.get("PICTURES", tmp_path)) / f"{name}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.read_bytes().startswith(b"\x89PNG")
