"""The parsing of streams: our client's, and a browser's, which says whether the table is right."""

import base64
import json
import os
import shutil
import subprocess
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from oncekey.events import AsyncBus, Bus, Gateway, Memory, Stages
from oncekey.events.client import client_path
from tests.patience import PATIENCE
from tests.system.browser.conftest import browser, complaints, context, new_context, page
from tests.system.browser.gateway_site import GatewaySite
from tests.system.sse.parsing_cases import CASES, RETRIES
from tests.system.sse.site import Site
from tests.system.sse.test_clients import HERE

__all__ = ["browser", "complaints", "context", "new_context", "page"]

pytestmark = pytest.mark.xdist_group("browser")


def test_our_parser_reads_what_the_standard_says_wherever_it_is_cut(tmp_path):
    shutil.copy(HERE / "parse.mjs", tmp_path)
    client = shutil.copy(client_path(), tmp_path / "oncekey-events.mjs")
    cases = {**CASES, **RETRIES}
    words = ["node", tmp_path / "parse.mjs"]
    done = subprocess.run(
        words,
        input=json.dumps([base64.b64encode(text).decode() for text, _ in cases.values()]),
        env={**os.environ, "ONCEKEY_EVENTS": str(client)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(zip(cases, json.loads(done.stdout), strict=True))
    assert found == {name: told for name, (_, told) in cases.items()}


class Streams(Site):
    """Serves the bytes that a request asks for, and keeps the ids that clients come back with."""

    def __init__(self):
        super().__init__()
        self.ids = []

    def answer(self, request):
        self.ids.append(request.headers["Last-Event-ID"])
        found = parse_qs(urlsplit(request.path).query)["body"]
        number = min(len(self.ids), len(found)) - 1
        request.wfile.write(base64.b64decode(unquote(found[number])))


TOLD = """(text) => new Promise((done) => {
  const told = [];
  const source = new EventSource("/stream?body=" + encodeURIComponent(text));
  for (const type of ["message", "test"]) {
    source.addEventListener(type, (message) => {
      told.push({ type, data: message.data, id: message.lastEventId });
    });
  }
  source.onerror = () => { source.close(); done(told); };
})"""


def test_a_browser_reads_the_same(page):
    with Streams() as server:
        page.goto(server.url)
        found = {
            name: page.evaluate(TOLD, base64.b64encode(text).decode())
            for name, (text, _) in CASES.items()
        }
    assert found == {name: told for name, (_, told) in CASES.items()}


RETURNS = """([bodies, count]) => new Promise((done) => {
  const told = [];
  const query = bodies.map((body) => "body=" + encodeURIComponent(body)).join("&");
  const source = new EventSource("/stream?" + query);
  source.onmessage = (message) => {
    told.push(message.data);
    if (told.length === count) { source.close(); done(told); }
  };
})"""
COMINGS_BACK = {
    "with the last id (eventsource-reconnect, last-event-id)": (
        [b"retry:1\nid:7\ndata:1\n\n", b"data:2\n\n"],
        [None, "7"],
    ),
    "with an id that came without data": (
        [b"retry:1\ndata:1\n\nid:8\n\n", b"data:2\n\n"],
        [None, "8"],
    ),
    "with the id of a whole message only": (
        [b"retry:1\nid:7\ndata:1\n\nid:8\ndata:cut", b"data:2\n\n"],
        [None, "7"],
    ),
    "without an id that was taken back": (
        [b"retry:1\nid:7\ndata:1\n\nid\n\n", b"data:2\n\n"],
        [None, None],
    ),
}


@pytest.mark.parametrize("case", COMINGS_BACK)
def test_a_browser_comes_back_with_the_id_that_we_rely_on(page, case):
    bodies, ids = COMINGS_BACK[case]
    with Streams() as server:
        page.goto(server.url)
        texts = [base64.b64encode(body).decode() for body in bodies]
        assert page.evaluate(RETURNS, [texts, 2]) == ["1", "2"]
        assert server.ids[:2] == ids


HOSTILE = [
    "a\nb\r\nc\rd",
    "\u2028\u2029\x85\x0b\x00",
    "\ufeff",
    "data: x\n\nid: 1\n\n",
    "\U0001f600ä",
]


@pytest.mark.row("E5")
@pytest.mark.parametrize("address", ["/events/job-1", "/events/?job=job-1&job=job-2"])
def test_whatever_is_published_reaches_a_browser_as_one_message(page, address):
    memory, stages = Memory(), Stages({"work": (1, 99)})
    bus = Bus(memory, domain="scan", stages=stages)
    for number, text in enumerate(HOSTILE, 1):
        bus.publish("job-1", "work", {text: text}, seq=number)
    watcher = AsyncBus(memory, domain="scan", stages=stages)
    with GatewaySite(Gateway(watcher, allow=None)) as site:
        page.goto(site.url)
        found = page.evaluate(
            """([address, count]) => new Promise((done) => {
              const told = [];
              const source = new EventSource(address);
              source.onmessage = (message) => {
                told.push(JSON.parse(message.data).data);
                if (told.length === count) { source.close(); done(told); }
              };
            })""",
            [address, len(HOSTILE)],
        )
        page.goto("about:blank")
    assert found == [{text: text} for text in HOSTILE]
