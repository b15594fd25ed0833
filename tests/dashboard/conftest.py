"""A dashboard on each store in turn, and browsers without a screen that have been let in or not."""

import re
import time
from html import unescape
from typing import Any

import httpx
import pytest

from oncekey import Once, Policy
from oncekey.dashboard import Dashboard
from oncekey.observe import Event
from tests.heavy import HEAVY
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = [
    "_shared_database",
    "another_redis",
    "empty_postgres_url",
    "empty_redis",
    "postgres",
    "redis_server",
]

TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing
HERE = "http://127.0.0.1:8000"
STORES = ("sqlite", "redis", "postgres")
HOLDING = Policy(on_crash="hold", heartbeat=False, ttl="24h")


class Browser(httpx.AsyncClient):
    """A client that keeps cookies, and reads the proof in the forms that it is shown."""

    async def form(self, page: str) -> dict[str, str]:
        """The hidden fields of the last form on a page."""
        text = (await self.get(page)).text
        return hidden(text)


def hidden(text: str) -> dict[str, str]:
    forms = re.findall(r"<form[^>]*method=\"post\"[^>]*>.*?</form>", text, re.DOTALL)
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', forms[-1])
    return {name: unescape(value) for name, value in found}


@pytest.fixture
def browse():
    """Browsers of a dashboard; `https://` and other hosts as base_url."""

    def browse(app, base_url: str = HERE) -> Browser:
        transport = httpx.ASGITransport(app=app)
        return Browser(transport=transport, base_url=base_url)

    return browse


@pytest.fixture
def memory():
    return Once("memory://", observers=(), policy=HOLDING)


def store_url_of(kind: str, request: Any) -> str:
    """An empty store."""
    if kind == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path') / 'records.db'}"
    if kind == "redis":
        return str(request.getfixturevalue("empty_redis").url)
    return str(request.getfixturevalue("empty_postgres_url"))


@pytest.fixture(params=STORES)
def store_url(request):
    return store_url_of(request.param, request)


@pytest.fixture
def once(store_url):
    made = Once(store_url, observers=(), policy=HOLDING)
    yield made
    made.close()


@pytest.fixture(params=STORES if HEAVY else STORES[:1])
def somewhere(request):
    """The same for what no store does differently: all of them only when there is time."""
    made = Once(store_url_of(request.param, request), observers=(), policy=HOLDING)
    yield made
    made.close()


@pytest.fixture
def quick(store_url):
    """The same for many records: a file is not on the disk after each."""
    relaxed = "?synchronous=NORMAL" if store_url.startswith("sqlite") else ""
    made = Once(f"{store_url}{relaxed}", observers=(), policy=HOLDING)
    yield made
    made.close()


@pytest.fixture
async def inside(browse):
    """Browsers that have been let in."""

    async def inside(app, base_url: str = HERE) -> Browser:
        browser: Browser = browse(app, base_url)
        response = await browser.post("/login", data={"token": TOKEN})
        assert response.status_code == 303
        return browser

    return inside


@pytest.fixture
def dashboard():
    def dashboard(once: Once, **options: Any) -> Dashboard:
        return Dashboard(once, token=TOKEN, **options)

    return dashboard


def hold(once: Once, key: str, *, scope: str | None = None, **facts: object) -> None:
    """The key is held: its attempt noted the facts, and nobody knows how it ended."""
    view = once.options(scope=scope, label="charge")
    with pytest.raises(TimeoutError), view.attempt(key) as attempt:
        attempt.note(**(facts or {"request": "req-77"}))
        attempt.step("reserve", str, "done")
        raise TimeoutError("the bank did not answer")


def tell(name: str, count: int = 1) -> Event:
    return Event(name=name, count=count)  # type: ignore[arg-type]  # one of the names


def now() -> int:
    return time.time_ns() // 1000
