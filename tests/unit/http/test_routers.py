"""What an application can answer, read from its router."""

import re

import flask
import pytest
from aiohttp import web
from django.conf.urls.i18n import (  # type: ignore[import-untyped]  # Django brings no types
    i18n_patterns,
)
from django.urls import (  # type: ignore[import-untyped]  # Django brings no types
    include,
    path,
    re_path,
)
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Host, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import BaseConverter

from oncekey.http.routers import meet, of_aiohttp, of_asgi, of_django, of_wsgi, shape_of
from tests.http import django_project

assert django_project.COMMON  # its import configures Django

PIECE = re.compile(r"\{[^/{}]*\}|\*")


def shape(text):
    return shape_of(text, PIECE, lambda piece: piece[0] == "*")


def answers(paths, pattern):
    return any(meet(shape(pattern), one.shape) for one in paths)


# Shapes


def regex(text):
    def piece(found):
        return ".*" if found[0] == "*" else "[^/]+"

    return re.compile(
        "".join(
            piece(part) if (part := PIECE.fullmatch(one)) else re.escape(one)
            for one in re.split(r"(\{[^/{}]*\}|\*)", text)
        )
    )


patterns = st.lists(st.sampled_from(["/", "a", "b", "{x}", "*"]), max_size=5).map("".join)


@given(patterns, st.text("/ab", max_size=6))
def test_a_path_meets_a_pattern_where_it_matches(pattern, path):
    assert meet(shape(pattern), tuple(path)) == bool(regex(pattern).fullmatch(path))


@given(patterns, patterns, st.text("/ab", max_size=5))
def test_two_patterns_meet_where_a_path_matches_both(one, other, path):
    assert meet(shape(one), shape(other)) == meet(shape(other), shape(one))
    if regex(one).fullmatch(path) and regex(other).fullmatch(path):
        assert meet(shape(one), shape(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("/a", "/b"), ("/a", "/a/"), ("/a/{x}", "/a/b/c"), ("/{x}", "/"), ("/a/*", "/b/{x}")],
)
def test_two_patterns_without_a_common_path_do_not(one, other):
    assert not meet(shape(one), shape(other))


# Starlette and FastAPI


async def nothing(request):
    raise AssertionError


def starlette():
    inner = Router([Route("/{id:int}", nothing), WebSocketRoute("/ws", nothing)])
    return Starlette(
        routes=[
            Route("/orders", nothing, methods=["POST"]),
            Route("/files/{name:path}", nothing),
            Mount("/api", app=inner),
            Mount("/static", app=StaticFiles(directory=".", check_dir=False)),
            Host("shop.example", app=Router([Route("/shop", nothing)])),
        ]
    )


def fastapi():
    app, router, nested = FastAPI(openapi_url=None), APIRouter(prefix="/api"), APIRouter()
    app.add_api_route("/orders", nothing, methods=["POST"])
    app.add_api_route("/files/{name:path}", nothing)
    nested.add_api_route("/{id}", nothing)
    router.include_router(nested, prefix="")
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=".", check_dir=False))
    app.host("shop.example", Starlette(routes=[Route("/shop", nothing)]))
    return app


@pytest.mark.parametrize("app", [starlette(), fastapi()], ids=["starlette", "fastapi"])
def test_the_routes_of_starlette_and_fastapi(app):
    paths = of_asgi(GZipMiddleware(GZipMiddleware(app)))
    for right in ("/orders", "/files/a/b", "/api/7", "/api/{id}", "/static/x", "/shop", "/api/*"):
        assert answers(paths, right), right
    for wrong in ("/order", "/orders/", "/orders/{id}", "/api/7/8", "/v2/*", "/shops"):
        assert not answers(paths, wrong), wrong


def test_a_router_that_cannot_be_read():
    assert of_asgi(nothing) is None
    assert of_wsgi(nothing) is None

    class Endless:
        @property
        def app(self):
            return self

    assert of_asgi(Endless()) is None
    assert of_wsgi(Endless()) is None


# Flask


class Anything(BaseConverter):
    regex = ".*"
    part_isolating = False


def flask_app():
    app = flask.Flask("shop")
    app.url_map.converters["anything"] = Anything
    for rule in ("/orders", "/orders/<int:id>/refund", "/files/<path:name>", "/any/<anything:x>"):
        app.add_url_rule(rule, rule, nothing, methods=["POST"])
    app.add_url_rule("/lax/", "lax", nothing, strict_slashes=False)
    app.add_url_rule("/strict/", "strict", nothing)
    return app


def test_the_routes_of_flask():
    app = flask_app()
    app.wsgi_app = ProxyFix(app.wsgi_app)
    for paths in (of_wsgi(app), of_wsgi(app.wsgi_app)):
        for right in ("/orders", "/orders/{id}/refund", "/files/a/b", "/any/a/b", "/lax", "/lax/"):
            assert answers(paths, right), right
        for wrong in ("/order", "/orders/", "/orders/7/8/refund", "/strict", "/api/orders"):
            assert not answers(paths, wrong), wrong


def test_what_is_mounted_beside_flask():
    app = flask_app()
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/api": nothing})
    assert answers(of_wsgi(app.wsgi_app), "/api/orders")
    assert not answers(of_wsgi(app.wsgi_app), "/v2/orders")


# aiohttp


def aiohttp_app():
    app, inner, more = (web.Application() for _ in range(3))
    for one in (app, inner):
        one.router.add_post("/orders", nothing)
    inner.router.add_route("*", "/orders/{id}/refund", nothing)
    inner.router.add_post(r"/items/{id:\d+}", nothing)
    inner.router.add_post("/caf\N{LATIN SMALL LETTER E WITH ACUTE}", nothing)
    inner.router.add_post("", nothing)
    inner.router.add_static("/static", ".")
    more.router.add_post("/more", nothing)
    inner.add_subapp("/deep", more)
    app.add_subapp("/api", inner)
    app.freeze()
    return app, inner


def test_the_routes_of_aiohttp():
    app, inner = aiohttp_app()
    for paths, root in ((of_aiohttp(app, ""), "/api"), (of_aiohttp(inner, "/api"), "")):
        for right in (
            *("/orders", "/orders/{id}/refund", "/orders/7/refund", "/items/7", "/static/a/b"),
            *("/caf\N{LATIN SMALL LETTER E WITH ACUTE}", "/deep/more"),
        ):
            assert answers(paths, root + right), right
        for wrong in ("/order", "/orders/7", "/orders/7/8/refund", "/item/7", "/more", "/deep"):
            assert not answers(paths, root + wrong), wrong
    assert answers(of_aiohttp(app, ""), "/orders")
    assert answers(of_aiohttp(inner, "/api"), "/")


# Django


def test_the_routes_of_django():
    orders = [path("", nothing), path("<int:id>/refund", nothing), path("<path:rest>/x", nothing)]
    paths = of_django(
        [
            path("orders/", include(orders)),
            re_path(r"^plain/$", nothing),
            re_path(r"^items/(?P<id>[^/.]+)/$", nothing),
            re_path(r"^old/?$", nothing),
            re_path(r"^start", nothing),
            re_path(r"^v1/", include([path("cart", nothing)])),
            re_path(r"^(?P<shop>\w+)-shop/", include([path("cart", nothing)])),
        ]
    )
    for right in (
        *("/orders/", "/orders/7/refund", "/orders/a/b/x", "/plain/", "/items/7/", "/old/"),
        *("/old", "/started", "/v1/cart"),
    ):
        assert answers(paths[:-1], right), right
    for wrong in ("/orders", "/orders/7", "/plain", "/item/7/", "/v1/card", "/v2/cart"):
        assert not answers(paths[:-1], wrong), wrong
    assert answers(paths[-1:], "/tea-shop/cart")


def test_a_language_may_stand_in_front():
    paths = of_django(i18n_patterns(path("orders", nothing)))
    assert answers(paths, "/de/orders")
    assert not answers(paths, "/de/order")
