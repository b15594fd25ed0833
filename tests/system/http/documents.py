"""The OpenAPI documents of one shop in several frameworks: `python -m ... FRAMEWORK`.

It prints the document as the framework makes it, and the one with our middleware described. Only
the environment of these tests has the frameworks.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc"

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from oncekey import Once
from oncekey.http.openapi import describe

SETTINGS: dict[str, Any] = {
    "scope": None,
    "routes": ["/orders", "/orders/*"],
    "required": True,
    "docs_url": "https://shop.test/keys",
}
INFO = {
    "title": "Shop",
    "version": "1.0.0",
    "description": "A shop.",
    "contact": {"name": "Ann", "url": "https://shop.test"},
    "license": {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
}
Documents = tuple[Any, Any]


def fastapi() -> Documents:
    from tests.system.http.fastapi_shop import make

    return make(plain=True).openapi(), make().openapi()


def drf_spectacular() -> Documents:
    import django
    from django.conf import settings

    hook = ["oncekey.http.django.drf_spectacular"]
    settings.configure(
        DEBUG=True,
        SECRET_KEY="not secret",  # noqa: S106 - nothing is signed
        ROOT_URLCONF="tests.system.http.drf_shop",
        INSTALLED_APPS=["rest_framework", "drf_spectacular"],
        REST_FRAMEWORK={
            "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "UNAUTHENTICATED_USER": None,
        },
        SPECTACULAR_SETTINGS={"TITLE": "Shop", "VERSION": "1", "POSTPROCESSING_HOOKS": hook},
        ONCEKEY={"store": "memory://", **SETTINGS},
    )
    django.setup()
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.settings import patched_settings

    described = SchemaGenerator().get_schema(request=None, public=True)
    with patched_settings({"POSTPROCESSING_HOOKS": []}):
        plain = SchemaGenerator().get_schema(request=None, public=True)
    return plain, described


def flask_smorest() -> Documents:
    return _smorest(described=False), _smorest(described=True)


def _smorest(*, described: bool) -> Any:
    import marshmallow
    from flask import Flask
    from flask.views import MethodView
    from flask_smorest import Api, Blueprint

    from oncekey.http.apispec import IdempotencyPlugin
    from oncekey.http.flask import install

    app = Flask("shop")
    app.config |= {"API_TITLE": "Shop", "API_VERSION": "1", "OPENAPI_VERSION": "3.0.3"}
    install(app, Once("memory://"), **SETTINGS)
    plugins = [IdempotencyPlugin(app.wsgi_app)] if described else []
    api = Api(app, spec_kwargs={"extra_plugins": plugins})

    class Order(marshmallow.Schema):
        item = marshmallow.fields.String(required=True)

    orders = Blueprint("orders", "orders", url_prefix="/orders", description="Orders")

    @orders.route("")
    class Orders(MethodView):
        @orders.arguments(Order)
        @orders.response(201, Order)
        def post(self, order: Any) -> Any:
            return order

        @orders.response(200, Order(many=True))
        def get(self) -> Any:
            return []

    api.register_blueprint(orders)
    return api.spec.to_dict()


def apispec() -> Documents:
    """Describe a document that apispec has made, which is then a plain dictionary."""
    from apispec import APISpec

    from oncekey.http.wsgi import IdempotencyMiddleware

    spec = APISpec("Shop", "1", "3.0.3", info=INFO)
    responses = {"201": {"description": "Ordered."}}
    spec.path("/orders", operations={"post": {"responses": responses}})
    plain = spec.to_dict()
    return plain, describe(plain, IdempotencyMiddleware(_nobody, Once("memory://"), **SETTINGS))


def _nobody(environ: Any, start_response: Any) -> list[bytes]:
    raise NotImplementedError


FRAMEWORKS: dict[str, Callable[[], Documents]] = {
    one.__name__: one for one in (fastapi, drf_spectacular, flask_smorest, apispec)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(FRAMEWORKS[sys.argv[1]](), default=str))
