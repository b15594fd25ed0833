"""The file of the browser's client, served over ASGI and found on disk."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from oncekey import ConfigurationError
from oncekey.events.client import client_app, client_path

TEXT = client_path().read_text("utf-8")
ROUTES = [Route("/oncekey-events.js", client_app), Mount("/below", client_app)]


@pytest.fixture
async def client():
    transport = httpx.ASGITransport(Starlette(routes=ROUTES))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client


@pytest.mark.parametrize("path", ["/oncekey-events.js", "/below/anything.js"])
async def test_it_is_served_as_a_script(client, path):
    answer = await client.get(path)
    assert (answer.status_code, answer.text) == (200, TEXT)
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


async def test_a_browser_that_has_it_is_told_so(client):
    tag = (await client.get("/oncekey-events.js")).headers["etag"]
    again = await client.get("/oncekey-events.js", headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    other = await client.get("/oncekey-events.js", headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.text) == (200, TEXT)


async def test_a_head_has_no_body_and_other_methods_are_refused(client):
    head = await client.head("/oncekey-events.js")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(TEXT.encode()))
    post = await client.post("/oncekey-events.js")
    assert (post.status_code, post.headers["allow"]) == (405, "GET, HEAD")


async def test_other_connections_are_refused():
    with pytest.raises(ConfigurationError, match="served over HTTP and no websocket"):
        await client_app({"type": "websocket"}, None, None)


def test_it_needs_nothing_from_anywhere():
    assert "import " not in TEXT.replace("import { follow }", "")
    assert "http://" not in TEXT
    assert "https://" not in TEXT
