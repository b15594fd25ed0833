"""Which requests are covered."""

from functools import partial

import pytest
from django.urls import path  # type: ignore[import-untyped]  # Django brings no types
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Route

from oncekey import ConfigurationError
from oncekey.http.request import placed
from oncekey.http.routers import Path, of_asgi, of_django, of_wsgi
from oncekey.http.rules import Routes


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/orders", "POST /orders"),
        ("/orders/", None),
        ("/orders/7/refund", "POST /orders/{id}/refund"),
        ("/orders/7/8/refund", None),
        ("/orders//refund", None),
        ("/api/", "POST /api/*"),
        ("/api/any/thing", "POST /api/*"),
        ("/ordersXX", None),
        ("/v1.0", "POST /v1.0"),
        ("/v1x0", None),
    ],
)
def test_routes_are_found_by_path(path, found):
    routes = Routes(["/orders", "/orders/{id}/refund", "/api/*", "/v1.0"], ["POST"])
    assert routes.find("POST", path, "") == found
    assert routes.find("GET", path, "") is None


def test_without_routes_every_path_is_meant():
    routes = Routes(None, ("POST", "PATCH"))
    assert routes.find("PATCH", "/whatever", "") == "PATCH (unknown route)"
    assert routes.find("PUT", "/whatever", "") is None


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/orders/7", "POST /orders/{number:int}"),
        ("/api/orders/7", "POST /orders/{number:int}"),
        ("/orders/7/notes", "POST /orders/{id}/notes"),
        ("/files/a/b", "POST /files/{path:path}"),
        ("/else", "POST (unknown route)"),
    ],
)
def test_a_label_is_the_method_and_the_route_of_the_application(path, label):
    app = Starlette(
        routes=[
            Route("/orders/{number:int}", nothing),
            Route("/orders/{id}/notes", nothing),
            Route("/files/{path:path}", nothing),
        ]
    )
    routes = Routes(None, ["POST"])
    routes.answered_by(partial(of_asgi, app))
    root = "/api" if path.startswith("/api") else ""
    assert routes.find("POST", path, root) == label


async def nothing(_):
    raise AssertionError


def test_labels_of_flask_and_django():
    flask = Flask("shop")
    flask.add_url_rule("/orders/<int:number>", "order", nothing, methods=["POST"])
    django = [path("orders/<int:number>", nothing)]
    for known in (partial(of_wsgi, flask.wsgi_app), partial(of_django, django)):
        routes = Routes(None, ["POST"])
        routes.answered_by(known)
        assert routes.find("POST", "/orders/7", "") == "POST /orders/<int:number>"
        assert routes.find("POST", "/orders/7/8", "") == "POST (unknown route)"


@pytest.mark.parametrize(
    ("routes", "methods"),
    [("/orders", ["POST"]), (["/orders"], "POST"), (["orders"], ["POST"]), ([7], ["POST"])],
)
def test_wrong_routes_are_refused(routes, methods):
    with pytest.raises(ConfigurationError, match="route"):
        Routes(routes, methods)


@pytest.mark.parametrize("route", ["/orders/<int:id>", "/orders/<id>/refund", "/orders/:id"])
def test_a_parameter_is_written_in_braces(route):
    with pytest.raises(ConfigurationError, match="in braces"):
        Routes([route], ["POST"])


@pytest.mark.parametrize("route", ["/orders/{id}:cancel", "/orders/{id:int}", "/a:b/*"])
def test_what_only_looks_like_another_parameter_is_none(route):
    assert Routes([route], ["POST"]).find("POST", route.replace("{id:int}", "7"), "") is not None


@pytest.mark.parametrize(
    ("routes", "methods", "empty"), [([], ["POST"], "routes="), (None, [], "methods=")]
)
def test_what_would_protect_nothing_is_refused(routes, methods, empty):
    with pytest.raises(ConfigurationError, match=f"{empty} is empty"):
        Routes(routes, methods)


@pytest.mark.parametrize("method", ["post", "", 7])
def test_wrong_methods_are_refused(method):
    with pytest.raises(ConfigurationError, match="method"):
        Routes(None, [method])


# Below a prefix


@pytest.mark.parametrize(
    ("path", "root", "placed_at"),
    [
        ("/api/orders", "/api", ("/api/orders", "/api")),  # uvicorn, Mount
        ("/orders", "/api", ("/api/orders", "/api")),  # hypercorn, granian, FastAPI(root_path=...)
        ("/api//orders", "/api/", ("/api/orders", "/api")),  # uvicorn --root-path /api/
        ("/apiary", "/api", ("/api/apiary", "/api")),
        ("/api", "/api", ("/api", "/api")),
        ("/orders", "api", ("/api/orders", "/api")),
        ("/orders", "", ("/orders", "")),
        ("//orders", "/", ("/orders", "")),
    ],
)
def test_servers_say_a_prefix_in_two_ways(path, root, placed_at):
    assert placed(path, root) == placed_at


def test_a_route_is_what_the_application_sees_or_what_the_client_sees():
    for route in ("/orders", "/api/orders", "/api/*"):
        routes = Routes([route], ["POST"])
        assert routes.find("POST", "/api/orders", "/api") == f"POST {route}"
    routes = Routes(["/orders", "/"], ["POST"])
    assert routes.find("POST", "/api/orders", "") is None
    assert routes.find("POST", "/api", "/api") == "POST /"


ORDERS = [Path("/orders", tuple("/orders"))]


def compared(*patterns, root=None, router=ORDERS):
    routes = Routes(patterns or None, ["POST"])
    routes.answered_by(lambda: router)
    routes.compare(root)
    return routes


@pytest.mark.parametrize("root", [None, "", "/api"])
def test_a_pattern_that_no_route_can_match_is_refused(root):
    with pytest.raises(ConfigurationError, match=r"'/order', which no route.* is '/orders'"):
        compared("/orders", "/order", root=root)
    with pytest.raises(ConfigurationError, match="nearest route is 'none'"):
        compared("/orders", router=[])


def test_it_is_refused_with_each_request_again():
    routes = Routes(["/order"], ["POST"])
    routes.answered_by(lambda: ORDERS)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no route"):
            routes.find("POST", "/orders", "")


def test_a_prefix_is_taken_for_granted_until_a_request_shows_it(caplog):
    routes = compared("/api/orders")
    routes.find("POST", "/orders", "")
    assert "'/api/orders', which matches no route" in caplog.text
    routes.find("POST", "/orders/7", "")
    assert len(caplog.records) == 1
    for root in ("/api", ""):
        caplog.clear()
        compared("/orders", "/api/orders" if root else "/orders", root=root)
        assert not caplog.records


def test_what_cannot_be_read_is_not_compared():
    assert compared("/order", router=None).find("POST", "/order", "") == "POST /order"
    compared(root="", router=[])
