"""What the fixtures of this folder promise, seen failing in a run of its own."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.heavy import HEAVY

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def site():
    """The address of a page without any script."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>here</title>")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_of_the_loopback_is_shown(page, site):
    page.goto(site)
    assert page.title() == "here"


WRONG = {
    "console.error('a word')": "a word",
    "setTimeout(() => { throw new Error('thrown') })": "thrown",
    "Promise.reject(new Error('rejected'))": "rejected",
    "fetch('http://192.0.2.1/').catch(() => 0)": "a request left the machine",
}


def test_what_goes_wrong_is_a_complaint(page, site, complaints):
    page.goto(site)
    for script, complaint in WRONG.items():
        page.evaluate(f"() => {{ {script} }}")
        page.evaluate("new Promise(done => setTimeout(done, 100))")
        assert any(complaint in one for one in complaints), complaints
        complaints.clear()


def test_nothing_but_the_loopback_can_be_reached(page, site, complaints):
    page.goto(site)
    asked = "(url) => fetch(url).then(() => 'there', (error) => error.name)"
    for address in ("http://example.com/", "http://192.0.2.1/"):
        assert page.evaluate(asked, address) == "TypeError"
        assert any("ERR_NAME_NOT_RESOLVED" in one for one in complaints)
        complaints.clear()


async def test_a_coroutine_of_the_same_worker_still_has_its_loop():
    await asyncio.sleep(0)


def test_a_loop_of_ones_own_still_runs():
    asyncio.run(asyncio.sleep(0))


if HEAVY:  # it starts a browser of its own

    def test_a_page_that_complains_fails_its_test(pytester, monkeypatch):
        here = Path(__file__).parent
        monkeypatch.setenv("PYTHONPATH", str(here.parents[2]))
        pytester.makeconftest((here / "conftest.py").read_text("utf-8"))
        pytester.makepyfile("def test(page): page.evaluate('console.error(1)')")
        result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
        assert result.parseoutcomes() == {"passed": 1, "errors": 1}
