"""WSGI without a framework, as PEP 3333 has it."""

from collections.abc import Callable, Iterable
from http.client import responses
from typing import Any

from oncekey.http import EVERYBODY
from oncekey.http.wsgi import IdempotencyMiddleware, claim
from tests.http.suite import service
from tests.http.suite.service import ROUTES, Asked
from tests.http.suite.site import TOKENS, Site

SERVER = "wsgi"
HELD_FOR = "oncekey.http.wsgi._HELD_FOR"


def make(site: Site, **settings: Any) -> Any:
    """The application behind the middleware, and the authentication in front of it."""
    return authenticating(IdempotencyMiddleware(application(site), site.once, **settings))


def authenticating(app: Any) -> Any:
    """Knows the users by their tokens, and tells who it is as servers do."""

    def authenticate(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["REMOTE_USER"] = TOKENS.get(environ.get("HTTP_AUTHORIZATION", ""), "")
        answer: Iterable[bytes] = app(environ, start_response)
        return answer

    return authenticate


def application(site: Site) -> Callable[..., Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        user = environ["REMOTE_USER"] or None
        if site.claims:
            claim(environ, scope=user or EVERYBODY)
        route, parameter = routed(environ["PATH_INFO"])
        asked = Asked(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            headers_of(environ),
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)),
            user,
            parameter,
        )
        answer = service.handle(site, route, asked)
        status = f"{answer.status} {responses.get(answer.status, 'Unknown')}"
        start_response(status, list(answer.headers))
        return [answer.body] if isinstance(answer.body, bytes) else answer.body

    return app


def routed(path: str) -> tuple[str, str]:
    if path in ROUTES:
        return path, ""
    start, _, parameter = path.rpartition("/")
    return f"{start}/{{parameter}}", parameter


def headers_of(environ: dict[str, Any]) -> dict[str, str]:
    return {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
    }
