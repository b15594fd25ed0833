"""Flask: views claim with a decorator, and exceptions become responses inside."""

from collections.abc import Callable
from typing import Any

import flask

from oncekey.http.flask import claimed, install
from tests.http.shells.wsgi import HELD_FOR, authenticating
from tests.http.suite import service
from tests.http.suite.service import ANY, ROUTES, Answer, Asked
from tests.http.suite.site import Site

SERVER = "wsgi"
__all__ = ["HELD_FOR", "SERVER", "make"]


def make(site: Site, **settings: Any) -> Any:
    """The application, with the authentication in front of the middleware."""
    app = flask.Flask("site")
    for path in ROUTES:
        view = viewing(site, path)
        if site.claims:
            view = claimed(scope=lambda: flask.request.remote_user or "nobody")(view)
        rule = path.replace("{parameter}", "<parameter>")
        app.add_url_rule(rule, path, view, methods=ANY, provide_automatic_options=False)
    install(app, site.once, **settings)
    return authenticating(app)


def viewing(site: Site, route: str) -> Callable[..., flask.Response]:
    def view(parameter: str = "") -> flask.Response:
        request = flask.request
        headers = {name.lower(): value for name, value in request.headers}
        asked = Asked(
            request.method,
            request.path,
            headers,
            request.get_data(),
            request.remote_user or None,
            parameter,
        )
        return response(service.handle(site, route, asked))

    return view


def response(answer: Answer) -> flask.Response:
    """The answer in Flask's terms."""
    made = flask.Response(answer.body, answer.status)
    if any(name == "content-type" for name, _ in answer.headers):
        del made.headers["content-type"]
    made.headers.extend(answer.headers)
    return made
