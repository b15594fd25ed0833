"""An application that is served below a prefix, as frameworks and servers have it."""

import hmac
import importlib
import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import flask
import httpx
import pytest
import uvicorn
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.core.checks import run_checks  # type: ignore[import-untyped]  # Django brings no types
from django.test import override_settings  # type: ignore[import-untyped]  # Django brings no types
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from oncekey import ConfigurationError, Once
from oncekey.http import aiohttp, presets
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.http.flask import install
from tests.http.conftest import NUMBERS, SHELLS
from tests.http.django_project import OURS
from tests.http.suite.servers import Address, Apps, serving_asgi
from tests.http.suite.site import Site

PREFIX = "/api"


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: Any) -> Any:
    """Each framework in turn."""
    return importlib.import_module(f"tests.http.shells.{request.param}")


@pytest.fixture(scope="module")
def prefixed_uvicorn() -> Iterator[tuple[Apps, Address]]:
    with serving_asgi(root_path=PREFIX) as started:
        yield started


def script_named(app: Any) -> Any:
    """As gunicorn does where SCRIPT_NAME is set."""

    def named(environ: dict[str, Any], start_response: Any) -> Any:
        return app({**environ, "SCRIPT_NAME": PREFIX}, start_response)

    return named


def unprefixed(app: Any) -> Any:
    """As hypercorn and granian do, and FastAPI with its own `root_path`."""

    async def told(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": PREFIX}, receive, send)

    return told


def nested(app: web.Application) -> web.Application:
    """As aiohttp does with an application inside of another one."""
    outer = web.Application()
    outer.add_subapp(PREFIX, app)
    return outer


def nested_in_a_domain(app: web.Application) -> web.Application:
    outer = web.Application()
    outer.add_domain("127.0.0.*", nested(app))
    return outer


WAYS: dict[str, dict[str, tuple[Callable[[Any], Any], str]]] = {
    # What is put around the application, and the prefix that the server still sees.
    "aiohttp": {
        "mount": (nested, PREFIX),
        "server": (nested_in_a_domain, PREFIX),
        "unprefixed": (nested, PREFIX),
    },
    "asgi": {
        "mount": (lambda app: Starlette(routes=[Mount(PREFIX, app=app)]), PREFIX),
        "server": (lambda app: app, ""),
        "unprefixed": (unprefixed, ""),
    },
    "wsgi": {
        "mount": (lambda app: DispatcherMiddleware(flask.Flask("x"), {PREFIX: app}), PREFIX),
        "server": (script_named, ""),
        "unprefixed": (script_named, ""),
    },
}


@pytest.fixture(params=["mount", "server", "unprefixed"])
def below(request: Any, shell: Any, servers: Any, prefixed_uvicorn: Any) -> Any:
    """Makes a site below the prefix; its client asks as a proxy in front of the server does."""
    around, seen = WAYS[shell.SERVER][request.param]
    told = shell.SERVER == "asgi" and request.param == "server"
    apps, address = prefixed_uvicorn if told else servers(shell.SERVER)
    sites: list[Site] = []

    def make(**settings: Any) -> Site:
        site = Site(str(next(NUMBERS)), address, settings)
        apps[site.number] = around(shell.make(site, **settings))
        site.client.base_url = f"{site.client.base_url}{seen}"
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.close()
        del apps[site.number]


@pytest.mark.parametrize("route", ["/orders", "/api/orders"])
def test_a_route_below_a_prefix_is_covered(below, route):
    site = below(scope=None, routes=[route], required=True)
    assert site.post("/orders").status_code == 400
    assert site.post("/orders", "k").content == site.post("/orders", "k").content
    assert len(site.runs) == 1
    assert site.record().scope == "POST:/api/orders"
    assert site.post("/empty").status_code == 204


@pytest.mark.parametrize("status_path", ["/requests", "/api/requests"])
def test_a_status_url_leads_through_the_prefix(below, status_path):
    site = below(scope=None, status_path=status_path)
    first = site.start("/slow", "k")
    site.gate.until_inside()
    url = site.post("/slow", "k").headers["location"]
    assert url.startswith("/api/requests/")
    inside = url.removeprefix(PREFIX)  # a proxy removes it; the base of the client may have it
    assert site.client.get(inside).status_code == 409
    site.gate.go_on.set()
    assert first.result().status_code == 201
    assert site.client.get(inside).content == first.result().content


def test_a_signature_covers_the_url_that_the_provider_has_called(below):
    site = below(profile=presets.twilio("token"))
    host, port = site.address
    signed = f"http://{host}:{port}/api/orders?a=%20b" + "Bodytea"
    signature = b64encode(hmac.digest(b"token", signed.encode(), "sha1")).decode()
    headers = {"x-twilio-signature": signature, "i-twilio-idempotency-token": "t-1"}
    for path, body, status in (
        ("/orders?a=%20b", "tea", 201),
        ("/orders?a=%20b", "tea", 200),  # a duplicate
        ("/orders?a=%20b", "milk", 401),
        ("/orders?a=%20c", "tea", 401),
    ):
        assert site.post(path, headers=headers, data={"Body": body}).status_code == status


# Around FastAPI, which sets the prefix itself further inside


async def test_the_prefix_of_a_wrapped_fastapi():
    runs: list[int] = []
    api = FastAPI()
    api.root_path = PREFIX
    api.post("/orders")(lambda: runs.append(1))
    app = IdempotencyMiddleware(api, Once("memory://"), scope=None, routes=["/orders"])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        for path in ("/orders", "/api/orders"):  # removed by a proxy, and not
            await client.post(path, headers={"idempotency-key": "k"})
    assert runs == [1]


# What no route can match


async def order(request: Any) -> Response:
    return Response()


def shop(*patterns: str) -> Starlette:
    app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
    app.add_middleware(
        IdempotencyMiddleware, once=Once("memory://"), scope=None, routes=list(patterns)
    )
    return app


async def test_a_server_does_not_start_with_a_route_that_protects_nothing(caplog, monkeypatch):
    # A server that another test has started may have set up the logs of uvicorn.
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "propagate", True)
    for pattern, starts in (("/order", False), ("/orders", True)):
        config = uvicorn.Config(shop(pattern), log_config=None, ws="none")
        config.load()
        lifespan = config.lifespan_class(config)
        await lifespan.startup()
        assert lifespan.should_exit is not starts
        await lifespan.shutdown()
    assert "routes= has '/order', which no route of the application can match" in caplog.text


async def test_an_application_that_is_not_started_says_it_with_the_first_request():
    app = Starlette(routes=[Mount(PREFIX, app=shop("/order"))])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="'/order', which no route"):
                await client.post("/api/orders", headers={"idempotency-key": "k"})


def test_flask_says_it_with_the_first_request():
    app = flask.Flask("shop")
    install(app, Once("memory://"), scope=None, routes=["/order"])
    app.add_url_rule("/orders", "orders", lambda: "", methods=["POST"])
    with pytest.raises(ConfigurationError, match="'/order', which no route"):
        app.test_client().post("/orders")


@pytest.mark.parametrize("around", [lambda app: app, nested, nested_in_a_domain])
async def test_aiohttp_says_it_with_the_first_request(around, caplog):
    app = web.Application()
    aiohttp.install(app, Once("memory://"), scope=None, routes=["/order"])
    app.router.add_post("/orders", order)
    async with TestClient(TestServer(around(app))) as client:
        for path in ("/orders", "/api/orders"):
            await client.post(path, headers={"idempotency-key": "k"})
    assert "'/order', which no route of the application can match" in caplog.text
    assert "the nearest route is '/orders'" in caplog.text


@override_settings(
    ROOT_URLCONF="tests.http.shells.django_sync",
    MIDDLEWARE=[OURS],
    ONCEKEY={"store": "memory://", "scope": None, "routes": ["/order"]},
)
def test_django_says_it_with_its_checks_and_with_the_first_request(client):
    (error,) = [one for one in run_checks() if one.id == "oncekey.E001"]
    assert "'/order', which no route" in error.msg
    with pytest.raises(ConfigurationError, match="'/order', which no route"):
        client.post("/orders", headers={"Idempotency-Key": "k"})


@pytest.fixture
def client() -> Any:
    from django.test import Client

    return Client()
