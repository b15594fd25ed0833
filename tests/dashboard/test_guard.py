"""Whatever is answered, and to whomever: the host is one of ours, and the browser is strict."""

import re

import pytest

from oncekey import ConfigurationError
from oncekey.dashboard import Dashboard
from oncekey.dashboard.security import HEADERS, LOOPBACK, POLICY, AllowedHosts
from tests.dashboard.conftest import hold

PAGES = (
    "/",
    "/records",
    "/records?status=held",
    "/record?at=k-1",
    "/record?at=k-2",
    "/record?at=nothing",
    "/record/forget?at=k-1",
    "/doctor",
    "/nothing",
)
FILES = ("/static/dashboard.css", "/static/dashboard.js", "/static/mark.svg")


@pytest.fixture
def app(memory, dashboard):
    memory.run("k-1", lambda: "kept")
    hold(memory, "k-2")
    return dashboard(memory, show_results=True)


@pytest.mark.parametrize("path", [*PAGES, *FILES])
async def test_every_answer_is_strict(app, inside, browse, path):
    for browser in (await inside(app), browse(app)):
        response = await browser.get(path)
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
        kept = "immutable" in response.headers["cache-control"]
        assert kept if path in FILES else response.headers["cache-control"] == "no-store"


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere():
    assert "unsafe" not in POLICY
    assert "*" not in POLICY
    assert "http" not in POLICY
    assert POLICY.startswith("default-src 'none'")


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_needs_what_the_policy_forbids(app, inside, path):
    text = (await (await inside(app)).get(path)).text
    assert not re.search(r"<[^>]+\s(?:style|on\w+)=", text)
    assert not re.search(r"<script(?![^>]* src=)|<style|javascript:|data:", text)
    for address in re.findall(r'(?:href|src|action)="([^"]*)"', text):
        assert address.startswith(("/", "#")), address


@pytest.mark.parametrize("path", PAGES)
async def test_every_field_has_a_label_and_every_page_one_title(app, inside, path):
    text = (await (await inside(app)).get(path)).text
    assert text.count("<h1") == 1
    assert '<a class="skip" href="#content">' in text
    fields = re.findall(r"<(?:input(?![^>]*hidden)|select|textarea)[^>]*>", text)
    labels = set(re.findall(r'<label for="([^"]+)"', text))
    for field in fields:
        if "aria-label=" not in field:
            assert re.search(r'id="([^"]+)"', field)[1] in labels, field


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_are_refused(app, inside, method):
    response = await (await inside(app)).request(method, "/records")
    assert response.status_code == 405


# Hosts


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1:9", "[::1]:8000"])
async def test_by_default_only_this_machine(app, browse, host):
    assert (await browse(app).get("/", headers={"Host": host})).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "user@127.0.0.1",
        "[::1",
        "127.0.0.1:x",
        "",
    ],
)
async def test_a_name_that_is_not_ours_gets_nothing(app, inside, host):
    browser = await inside(app)
    for path in ("/", "/records", "/static/dashboard.css"):
        response = await browser.get(path, headers={"Host": host})
        assert response.status_code == 400
        assert response.headers["content-security-policy"] == POLICY
        assert "allowed_hosts" in response.text
        assert "127.0.0.1'" not in response.text.replace("@127.0.0.1'", "")


async def test_two_names_are_none(app):
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"127.0.0.1"), (b"host", b"evil.example")],
        "query_string": b"",
    }
    sent = []

    async def send(message):
        sent.append(message)

    await app(scope, None, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    ("allowed", "host", "known"),
    [
        (["ops.example.com"], "ops.example.com", True),
        (["OPS.example.com"], "ops.EXAMPLE.com.:8443", True),
        (["ops.example.com"], "example.com", False),
        (["*.example.com"], "a.b.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "badexample.com", False),
        (["*"], "anything", True),
        (["*"], "", False),
        (LOOPBACK, "[::1]", True),
        (LOOPBACK, "::1", False),
    ],
)
def test_names(allowed, host, known):
    assert AllowedHosts(allowed).know(host) is known


@pytest.mark.parametrize(
    "name", ["https://x", "x:80", "x/y", "", "*.", "x*", None, 1, "a b", "*.*.x"]
)
def test_what_is_no_name_is_refused(memory, name):
    with pytest.raises(ConfigurationError, match="allowed_hosts"):
        Dashboard(memory, auth=lambda _: True, allowed_hosts=[name])


async def test_a_websocket_is_refused(app):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    headers = [(b"host", b"127.0.0.1")]
    await app({"type": "websocket", "path": "/", "headers": headers}, receive, send)
    assert sent[0]["type"] == "websocket.close"
