"""apispec, and flask-smorest which uses it: a plugin that describes the middleware in the document.

install(app, once, ...)
Api(app, spec_kwargs={"extra_plugins": [IdempotencyPlugin(app.wsgi_app)]})
"""

from __future__ import annotations

from typing import Any

from oncekey.extras import needing
from oncekey.http.openapi import describe

with needing("apispec", __name__):
    from apispec import APISpec, BasePlugin

__all__ = ["IdempotencyPlugin"]


class IdempotencyPlugin(BasePlugin):
    """Describe each operation that the middleware covers."""

    def __init__(self, middleware: Any) -> None:
        """Describe this middleware, such as the one that `install` puts around a Flask."""
        super().__init__()
        self._middleware = middleware

    def init_spec(self, spec: APISpec) -> None:
        """Remember the document to which the components go."""
        self._spec = spec

    def operation_helper(
        self, path: str | None = None, operations: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Describe the operations of one path."""
        if path is None or not operations:
            return
        components = self._spec.components
        for operation in operations.values():
            # apispec puts a reference for a name only after this, and makes what it refers to.
            responses = operation.get("responses", {})
            for status, name in responses.items():
                responses[status] = components.get_ref("response", name)
            parameters = operation.get("parameters", [])
            parameters[:] = [components.get_ref("parameter", one) for one in parameters]
        kinds = {
            "schemas": components.schemas,
            "parameters": components.parameters,
            "headers": components.headers,
            "responses": components.responses,
        }
        version = str(self._spec.openapi_version)
        document = {"openapi": version, "paths": {path: operations}, "components": kinds}
        made = describe(document, self._middleware)
        operations.update(made["paths"][path])
        for operation in operations.values():
            parameters = operation.get("parameters", [])
            parameters[:] = map(_named, parameters)
        for kind, there in kinds.items():
            there.update(made["components"].get(kind, {}))


def _named(parameter: dict[str, Any]) -> Any:
    """Return the name of a component, since apispec takes no reference there."""
    reference = parameter.get("$ref")
    return parameter if reference is None else reference.rpartition("/")[2]
