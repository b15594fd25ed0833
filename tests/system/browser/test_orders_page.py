"""The shop of examples/orders: FastAPI, a Celery worker and a page of React in a real Chromium.

The picture of the documentation is taken anew by
`PICTURES=docs/images pytest tests/system/browser/test_orders_page.py -k picture`.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from examples.orders.tasks import PLAN
from tests.outside.environment import ROOT
from tests.patience import PATIENCE, until
from tests.servers.ports import free_port
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

pytestmark = pytest.mark.xdist_group("browser")

expect.set_options(timeout=PATIENCE * 1000)
TEXTS = [*PLAN["pay"], *PLAN["pack"], *PLAN["ship"]]


@pytest.fixture(scope="session")
def built():
    """The page, built with the packed client."""
    words = ["make", "orders"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)


class Shop:
    """The server and the worker, each in a process of its own."""

    def __init__(self, url, pace, folder):
        """A worker that is killed leaves a folder in `folder`."""
        told = {"REDIS_URL": url, "ORDERS_PACE": str(pace), "TMPDIR": str(folder)}
        self._variables = {**os.environ, **told}
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._processes = []

    def serve(self):
        words = ["uvicorn", "--factory", "examples.orders.app:app", "--port", self._port]
        return self._start(*words, "--log-level", "warning")

    def work(self):
        words = ["celery", "-A", "examples.orders.tasks", "worker", "-c", "3", "-l", "WARNING"]
        return self._start(*words)

    def _start(self, *words):
        command = [sys.executable, "-m", *map(str, words)]
        made = subprocess.Popen(command, cwd=ROOT, env=self._variables, start_new_session=True)
        self._processes.append(made)
        return made

    def kill(self, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        for process in self._processes:
            if process.poll() is None:
                self.kill(process)


@pytest.fixture(autouse=True)  # first, so that it outlives the page
def open_shop(empty_redis, built, tmp_path):
    opened = []

    def open_shop(pace):
        opened.append(Shop(empty_redis.url, pace, tmp_path))
        return opened[-1]

    yield open_shop
    for shop in opened:
        shop.close()


def visit(page, shop):
    until(lambda: _answers(page, shop.url))
    page.goto(shop.url)
    page.get_by_role("button").click()


def _answers(page, url):
    try:
        return page.request.get(url).ok
    except Exception:  # noqa: BLE001 - it is not up yet
        return False


def asked(page):
    """The requests for events, as they are made."""
    made = []
    page.on("request", lambda one: made.append(one.url) if "/events/" in one.url else None)
    return made


@pytest.mark.row("E5")
def test_a_page_follows_all_jobs_of_an_order_on_one_connection(page, open_shop):
    shop = open_shop(0.05)
    shop.serve()
    shop.work()
    requests = asked(page)
    visit(page, shop)
    expect(page.locator("section[data-percent='100']")).to_have_count(3)
    assert page.locator("li").all_inner_texts() == TEXTS
    assert len(requests) == 1
    page.reload()
    expect(page.locator("section[data-percent='100']")).to_have_count(3)
    assert page.locator("li").all_inner_texts() == TEXTS


@pytest.mark.row("E5", "E7")
def test_it_ends_complete_though_the_server_is_started_again(page, open_shop, complaints):
    shop = open_shop(0.2)
    server = shop.serve()
    shop.work()
    visit(page, shop)
    expect(page.locator("li").first).to_be_visible()
    shop.kill(server)
    expect(page.locator(".status")).not_to_have_text("Live")
    shop.serve()
    expect(page.locator("section[data-percent='100']")).to_have_count(3)
    assert page.locator("li").all_inner_texts() == TEXTS
    complaints[:] = [
        one for one in complaints if "Failed to load" not in one and "CHUNKED" not in one
    ]


def test_the_picture_of_the_documentation(page, open_shop, tmp_path):
    shop = open_shop(0.7)
    shop.serve()
    shop.work()
    page.set_viewport_size({"width": 720, "height": 680})
    visit(page, shop)
    expect(page.locator("section[data-percent='100']").first).to_be_visible()
    folder = Path(os.environ.get("PICTURES", tmp_path))
    page.screenshot(path=folder / "orders.png", animations="disabled")
    assert (folder / "orders.png").stat().st_size > 5000
