"""A real Chromium for tests of pages, driven by Playwright's blocking API.

A module of browser tests starts with `pytestmark = pytest.mark.xdist_group("browser")`, so that one
worker runs all of them in one browser. Its tests are plain functions that ask for

- `page`: a fresh page in a context of its own, so without cookies and storage of other tests.
  The test fails when the page complains: an error on its console, an exception that nobody caught,
  or a request to anything but the loopback, which the browser cannot reach.
- `complaints`: the list of these, for a test that provokes some: take them out before it ends.
- `context`: where that page is; `context.set_offline(True)` cuts its network.
- `new_context`: makes another, with options of Playwright such as `color_scheme="dark"` and
  `viewport={"width": 390, "height": 844}`. Its pages are heard as well.
- `browser`: one for the whole run. Use it through the fixtures above.

Servers run in threads or processes. Playwright's events arrive only while a method of Playwright
runs: wait with those (`expect(...)`, `page.wait_for_function`) and not with `time.sleep`. Where a
page has a Content-Security-Policy only the first of the two works.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, sync_playwright

from tests.patience import PATIENCE
from tests.system.packages import find_chromium

ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # root may not have one, and the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # a container's is small
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
LOCAL = ("127.0.0.1", "localhost")


@pytest.fixture(scope="session")
def browser():
    """One Chromium for the whole run."""
    path = find_chromium()
    assert path is not None, "no Chromium: run make test-servers, which installs one"
    with _parked():
        playwright = sync_playwright().start()
        made = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        loop = asyncio.get_running_loop()
    yield _Browser(made, loop)
    with _parked(loop):
        made.close()
        playwright.stop()


class _Browser:
    """The browser, and the loop that it must find running whenever it is used."""

    def __init__(self, made, loop):
        self.loop = loop
        self._made = made

    def __getattr__(self, name):
        return getattr(self._made, name)


@contextmanager
def _parked(loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Playwright's loop counts as running in the block and not after it.

    Playwright leaves it running between two calls, and no other test of this worker could run one.
    """
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def new_context(browser, complaints):
    """Contexts whose pages are heard when they complain. They are closed with the test."""
    made = []

    def new(**options: Any) -> BrowserContext:
        context: BrowserContext = browser.new_context(**options)
        made.append(context)
        context.set_default_timeout(PATIENCE * 1000)
        context.on("console", lambda said: complaints.extend(_error(said)))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on("request", lambda request: complaints.extend(_foreign(request.url)))
        return context

    with _parked(browser.loop):
        yield new
        for context in made:
            context.close()
    assert complaints == []


def _error(said: ConsoleMessage) -> Iterator[str]:
    if said.type == "error":
        yield said.text


def _foreign(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob", "about") and parts.hostname not in LOCAL:
        yield f"a request left the machine: {url}"


@pytest.fixture
def context(new_context):
    return new_context()


@pytest.fixture
def page(context):
    return context.new_page()
