"""Which requests are covered."""

import pytest

from oncekey import ConfigurationError
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
    assert routes.find("POST", path) == found
    assert routes.find("GET", path) is None


def test_without_routes_every_path_is_meant():
    routes = Routes(None, ("POST", "PATCH"))
    assert routes.find("PATCH", "/whatever") == "PATCH"
    assert routes.find("PUT", "/whatever") is None


@pytest.mark.parametrize(
    ("routes", "methods"),
    [("/orders", ["POST"]), (["/orders"], "POST"), (["orders"], ["POST"]), ([7], ["POST"])],
)
def test_wrong_routes_are_refused(routes, methods):
    with pytest.raises(ConfigurationError, match="route"):
        Routes(routes, methods)


@pytest.mark.parametrize("method", ["post", "", 7])
def test_wrong_methods_are_refused(method):
    with pytest.raises(ConfigurationError, match="method"):
        Routes(None, [method])
