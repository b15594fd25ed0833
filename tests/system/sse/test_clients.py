"""Clients that people use, against frames of the gateway that are cut off between any two lines."""

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from oncekey.events import AsyncBus, Bus, Gateway, Stages
from oncekey.events.client import client_path
from oncekey.events.cursor import Cursor, parse
from oncekey.events.sse import event_frame, greeting
from tests.outside.environment import ROOT, pip
from tests.patience import PATIENCE, until
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.system.browser.conftest import browser, complaints, context, new_context, page
from tests.system.browser.gateway_site import GatewaySite

__all__ = [
    "browser",
    "complaints",
    "context",
    "empty_redis",
    "new_context",
    "page",
    "redis_server",
]

pytestmark = pytest.mark.xdist_group("browser")

HERE = Path(__file__).parent
FOLDER = ROOT / "build" / "sse"
EVENTS, CUTS = 120, 3
NODE = ("eventsource", "fetch-event-source", "oncekey-events")
PYTHON = ("of_httpx_sse", "of_sseclient", "of_curl")


@pytest.fixture(scope="session")
def packages():
    """The clients at fixed versions."""
    wanted = (HERE / "package.json").read_text() + (HERE / "constraints.txt").read_text()
    stamp = FOLDER / "stamp"
    if not stamp.is_file() or stamp.read_text() != wanted + sys.version:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        shutil.copy(HERE / "package.json", FOLDER)
        words = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
        subprocess.run(words, cwd=FOLDER, check=True, capture_output=True)
        names = ("install", "--no-deps", "--target", FOLDER / "python")
        pip(Path(sys.executable), *names, "-r", HERE / "constraints.txt")
        stamp.write_text(wanted + sys.version)
    return FOLDER


@pytest.fixture(scope="session")
def packed(packages):
    """The package of npm, as `make client` packs it, installed beside the others."""
    words = ["make", "client"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    [tarball] = (ROOT / "build" / "client").glob("oncekey-events-*.tgz")
    words = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
    subprocess.run([*words, tarball], cwd=packages, check=True, capture_output=True)
    return packages


class Cutting:
    """Serves the log from where a client is, and cuts it off in one way, three times."""

    def __init__(self, place):
        self.cuts = 0
        outer = self
        frames = [
            event_frame("job", b'{"seq":%d,"data":"\xc3\xa4"}' % n, Cursor("ab", n, "0c"))
            for n in range(1, EVENTS + 1)
        ]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                if url.path == "/":
                    self._answer("text/html")
                    self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>a</title>")
                    return
                self._answer("text/event-stream; charset=utf-8")
                query = parse_qs(url.query).get("after", [""])[0]
                saw = parse(self.headers["Last-Event-ID"] or query)
                at = 0 if saw is None else saw.offset
                self.wfile.write(greeting().replace(b"retry: ", b"retry: 1\n: "))
                end = min(EVENTS, at + EVENTS // (CUTS + 1))
                if outer.cuts == CUTS:
                    self.wfile.write(b"".join(frames[at:]))
                    self.wfile.flush()
                    self.connection.settimeout(PATIENCE)
                    self.connection.recv(1)
                    return
                outer.cuts += 1
                part = frames[end]  # of this one a client gets some lines
                cut = {"data": part.index(b"\xa4"), "id": part.index(b"\nid") + 1}
                cut |= {"end": len(part) - 1, "whole": len(part), "none": 0}
                self.wfile.write(b"".join(frames[at:end]) + part[: cut[place]])

            def _answer(self, kind):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


PLACES = ("none", "data", "id", "whole", "end")


@pytest.mark.row("E5")
@pytest.mark.parametrize("client", [*NODE, *PYTHON])
def test_a_client_has_each_event_once_wherever_it_was_cut_off(packages, client):
    """But for fetch-event-source between the id and the empty line: it takes the id at once."""
    words = [sys.executable, HERE / "watch.py"]
    if client in NODE:
        shutil.copy(HERE / "watch.mjs", packages)
        shutil.copy(client_path(), packages / "oncekey-events.mjs")
        words = ["node", packages / "watch.mjs"]
    variables = {
        **os.environ,
        "PYTHONPATH": str(packages / "python"),
        "ONCEKEY_EVENTS": str(packages / "oncekey-events.mjs"),
    }
    for place in PLACES if client != "fetch-event-source" else PLACES[:-1]:
        with Cutting(place) as server:
            done = subprocess.run(
                [*words, client, f"{server.url}/job", str(EVENTS)],
                env=variables,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == list(range(1, EVENTS + 1)), place
            assert server.cuts == CUTS


@pytest.mark.row("E5")
@pytest.mark.parametrize("place", PLACES)
def test_the_eventsource_of_a_browser_has_each_event_once(page, place):
    with Cutting(place) as server:
        page.goto(server.url)
        page.evaluate(
            """() => {
              window.seen = [];
              window.source = new EventSource("/job");
              source.onmessage = (message) => seen.push(JSON.parse(message.data).offset);
            }"""
        )
        page.wait_for_function("n => seen.at(-1) === n", arg=EVENTS)
        assert page.evaluate("seen") == list(range(1, EVENTS + 1))
        assert server.cuts == CUTS
        page.evaluate("source.close()")


def node(folder, script, *words):
    shutil.copy(HERE / script, folder)
    command = ["node", folder / script, *map(str, words)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.row("E5")
def test_the_hook_of_the_packed_client_shows_each_event_once(packed):
    with Cutting("data") as server:
        shown = node(packed, "hook.mjs", f"{server.url}/job", EVENTS)
    assert shown == {"offsets": list(range(1, EVENTS + 1)), "resync": None}


@pytest.mark.row("E5", "E7")
def test_the_packed_client_has_each_event_of_several_jobs_once(packed, empty_redis):
    """On Redis, though the gateway ends all responses again and again."""
    jobs, stages = ["a", "b", "order/1"], Stages({"work": (1, 99)})
    gateway = Gateway(AsyncBus(empty_redis.url, domain="scan", stages=stages), allow=None)
    shutil.copy(HERE / "many.mjs", packed)
    with (
        GatewaySite(gateway) as site,
        Bus(empty_redis.url, domain="scan", stages=stages) as bus,
        ThreadPoolExecutor(1) as pool,
    ):
        words = (f"{site.url}/events/", 20, *jobs)
        shown = pool.submit(node, packed, "many.mjs", *words)
        for number in range(1, 21):
            for job in jobs:
                bus.publish(job, "work", None, seq=number)
            until(lambda: gateway._open or shown.done())
            if number % 4 == 0:
                gateway.close()
        assert shown.result() == {job: list(range(1, 21)) for job in jobs}


def test_the_types_of_the_packed_client_fit_how_it_is_used(packed):
    for source, wrong in (("typed.ts", False), ("mistyped.ts", True)):
        shutil.copy(HERE / source, packed)
        words = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module"]
        done = subprocess.run(
            [packed / "node_modules" / ".bin" / "tsc", *words, "nodenext", packed / source],
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(done.returncode) == wrong, done.stdout
