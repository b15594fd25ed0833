"""Clients that people use, against frames of the gateway that are cut off between any two lines."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
from tests.system.sse.site import Site

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
NODE = ("eventsource", "@microsoft/fetch-event-source", "oncekey-events")
PYTHON = ("httpx-sse", "sseclient-py", "curl")


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


class Cutting(Site):
    """Serves the log from where a client is, and cuts it off in one way, three times."""

    stream = "/job"

    def __init__(self, place):
        super().__init__()
        self.cuts = 0
        self._place = place
        self._frames = [
            event_frame("job", b'{"seq":%d,"data":"\xc3\xa4"}' % n, Cursor("ab", n, "0c"))
            for n in range(1, EVENTS + 1)
        ]

    def answer(self, request):
        query = parse_qs(urlsplit(request.path).query).get("after", [""])[0]
        saw = parse(request.headers["Last-Event-ID"] or query)
        at = 0 if saw is None else saw.offset
        request.wfile.write(greeting().replace(b"retry: ", b"retry: 1\n: "))
        if self.cuts == CUTS:
            request.wfile.write(b"".join(self._frames[at:]))
            request.wfile.flush()
            request.connection.settimeout(PATIENCE)
            request.connection.recv(1)
            return
        self.cuts += 1
        end = min(EVENTS, at + EVENTS // (CUTS + 1))
        part = self._frames[end]  # of this one a client gets some lines
        kept = part[: PLACES[self._place](part)]
        request.wfile.write(b"".join(self._frames[at:end]) + kept)


PLACES = {
    "between two events": len,
    "in the data": lambda frame: frame.index(b"\xa4"),
    "before the id": lambda frame: frame.index(b"\nid") + 1,
    "before the empty line": lambda frame: len(frame) - 1,
}
"""Where a client is cut off, and how many bytes of an event it has got then."""


def told(seen):
    """What became of the events, in the words of the table in docs/events.md."""
    twice, missing = len(seen) - len(set(seen)), EVENTS - len(set(seen))
    if sorted(seen) != seen:
        return "out of order"
    facts = [f"{n} {fact}" for n, fact in ((twice, "twice"), (missing, "missing")) if n]
    return ", ".join(facts) or "all once"


def in_docs(client):
    """The row of a client in docs/events.md, by where it was cut off."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "events.md").read_text("utf-8").splitlines()
        if line.startswith(("| cut off |", f"| {client} |", f"| `{client}` |"))
    ]
    return dict(zip(rows[0][1:], rows[1][1:], strict=True))


@pytest.mark.row("E5")
@pytest.mark.parametrize("client", [*NODE, *PYTHON])
def test_what_a_client_has_after_three_cuts_is_as_the_docs_say(packages, client):
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
    found = {}
    for place in PLACES:
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
            found[place] = told(json.loads(done.stdout))
            assert server.cuts == CUTS
    assert found == in_docs(client)


@pytest.mark.row("E5")
def test_what_the_eventsource_of_a_browser_has_is_as_the_docs_say(page):
    found = {}
    for place in PLACES:
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
            found[place] = told(page.evaluate("seen"))
            assert server.cuts == CUTS
            page.evaluate("source.close()")
    assert found == in_docs("EventSource in Chromium")


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
    with Cutting("in the data") as server:
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
