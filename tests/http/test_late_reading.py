"""Under `claim="handler"` nothing is read before the application has authenticated the client."""

import json
from typing import Any

import flask
import pytest
from django.core.handlers.wsgi import WSGIHandler  # type: ignore[import-untyped]  # Django brings no types
from django.http import HttpResponse  # type: ignore[import-untyped]  # Django brings no types
from django.test import override_settings  # type: ignore[import-untyped]  # Django brings no types
from django.urls import path  # type: ignore[import-untyped]  # Django brings no types
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oncekey.http import EVERYBODY, asgi, wsgi
from oncekey.http.django import claimed as claimed_view
from oncekey.http.flask import claimed, install
from tests.http.conftest import NUMBERS
from tests.http.django_project import OURS, SITES, authenticate
from tests.http.suite.site import Run, Site

WHO = "authorization"
HALF = 5


def starlette_app(site: Site, **settings: Any) -> Any:
    async def pay(request: Request) -> Response:
        if WHO not in request.headers:
            return Response(status_code=401)
        parts = request.stream()
        first = await anext(parts) if "x-early" in request.headers else b""
        await asgi.claim(request, scope=EVERYBODY)
        body = first + b"".join([part async for part in parts])
        site.runs.append(Run("/pay", body))
        return Response(body)

    app = Starlette(routes=[Route("/pay", pay, methods=["POST"])])
    return asgi.IdempotencyMiddleware(app, site.once, **settings)


def wsgi_app(site: Site, **settings: Any) -> Any:
    def pay(environ: Any, start_response: Any) -> Any:
        if "HTTP_AUTHORIZATION" not in environ:
            start_response("401 Unauthorized", [])
            return []
        file = environ["wsgi.input"]
        first = file.read(HALF) if "HTTP_X_EARLY" in environ else b""
        wsgi.claim(environ, scope=EVERYBODY)
        site.runs.append(Run("/pay", first + file.read()))
        start_response("200 OK", [])
        return [site.runs[-1].body]

    return wsgi.IdempotencyMiddleware(pay, site.once, **settings)


def flask_app(site: Site, **settings: Any) -> Any:
    app = flask.Flask("shop")

    @claimed(scope=None)
    def paying() -> bytes:
        site.runs.append(Run("/pay", flask.request.get_data()))
        return site.runs[-1].body

    @app.post("/pay")
    def pay() -> Any:
        if WHO not in flask.request.headers:
            return "", 401
        if "x-early" in flask.request.headers:
            flask.request.get_data()
        return paying()

    install(app, site.once, **settings)
    return app


def django_app(site: Site, **settings: Any) -> Any:
    SITES[site.number] = site, __name__
    with override_settings(
        MIDDLEWARE=[f"{authenticate.__module__}.authenticate", OURS],
        ONCEKEY={"once": site.once, **settings},
    ):
        return WSGIHandler()


def django_pay(request: Any) -> HttpResponse:
    if WHO not in request.headers:
        return HttpResponse(status=401)
    if "x-early" in request.headers:
        assert request.body
    return django_paying(request)


@claimed_view(scope=None)
def django_paying(request: Any) -> HttpResponse:
    site = SITES[request.headers["x-site"]][0]
    site.runs.append(Run("/pay", request.body))
    return HttpResponse(request.body)


urlpatterns = [path("pay", django_pay)]
KINDS = {
    "starlette": ("asgi", starlette_app),
    "wsgi": ("wsgi", wsgi_app),
    "flask": ("wsgi", flask_app),
    "django": ("wsgi", django_app),
}


@pytest.fixture(params=KINDS)
def late(request: Any, servers: Any) -> Any:
    """Makes sites whose handler authenticates, and then claims."""
    server, make = KINDS[request.param]
    apps, address = servers(server)
    sites: list[Site] = []

    def start(**settings: Any) -> Site:
        settings = {"claim": "handler", "scope": None, **settings}
        site = Site(str(next(NUMBERS)), address, settings)
        apps[site.number] = make(site, **settings)
        sites.append(site)
        return site

    yield start
    for site in sites:
        site.close()
        del apps[site.number]


def test_who_is_not_known_is_refused_before_a_byte_of_the_body_has_come(late):
    site = late()
    head = "POST /pay HTTP/1.1\nIdempotency-Key: k\nContent-Length: 1000\nConnection: close"
    with site.connect(head) as connection:
        assert b" 401 " in connection.recv(4096).split(b"\r\n")[0]
    assert not site.runs
    assert not site.store.calls


@pytest.mark.parametrize("early", [{}, {"x-early": "1"}], ids=["nothing", "a part"])
@pytest.mark.parametrize("size", [20, 3_000_000])
def test_a_handler_that_has_read_some_of_it_gets_all_of_it(late, early, size):
    site, content = late(), json.dumps("x" * size).encode()
    headers = {WHO: "Bearer ann-1", **early}
    first, again = (site.post("/pay", "k", content=content, headers=headers) for _ in range(2))
    assert (first.status_code, first.content == content) == (200, True)
    assert [run.body == content for run in site.runs] == [True]
    assert again.status_code == (200 if size < 1 << 20 else 409)  # too large to be kept
    assert site.post("/pay", "k", content=b"{}", headers=headers).status_code == 422


@pytest.mark.parametrize("early", [{}, {"x-early": "1"}], ids=["nothing", "a part"])
def test_what_is_too_large_is_refused_with_the_claim(late, early):
    site = late(max_body=100)
    headers = {WHO: "Bearer ann-1", **early}
    assert site.post("/pay", "k", content=b"x" * 101, headers=headers).status_code == 413
    assert not site.runs
    assert not site.store.calls


def test_a_client_that_goes_away_within_its_body_claims_nothing(late, caplog):
    site = late()
    head = f"POST /pay HTTP/1.1\nIdempotency-Key: k\nContent-Length: 1000\n{WHO}: Bearer ann-1"
    with site.connect(head) as connection:
        connection.sendall(b"0123456789")
    assert site.post("/pay", "k", content=b"{}", headers={WHO: "Bearer ann-1"}).status_code == 200
    assert [run.body for run in site.runs] == [b"{}"]
