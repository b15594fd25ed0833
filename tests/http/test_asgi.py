"""Starlette with other middlewares around ours."""

from contextvars import ContextVar

import pytest
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from tests.http.shells import starlette
from tests.http.suite.service import LARGE

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="none")


@pytest.fixture(scope="module")
def shell():
    return starlette


class TestMiddlewaresAround:
    @pytest.mark.parametrize("place", ["outside", "inside"])
    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_a_base_http_middleware(self, serve, place, claim):
        async def passing(request, call_next):
            answer = await call_next(request)
            answer.headers["x-passed"] = "yes"
            return answer

        around = {place: (Middleware(BaseHTTPMiddleware, dispatch=passing),)}
        site = serve(scope=None, claim=claim, **around)
        first, again = site.post(key="k"), site.post(key="k")
        assert first.content == again.content
        assert first.headers["x-passed"] == again.headers["x-passed"] == "yes"
        assert again.headers["idempotent-replayed"] == "true"
        assert site.post("/orders", "k", json={}).status_code == 422
        assert [site.post("/boom", "x").status_code for _ in range(2)] == [500, 500]
        for path in ("/cookies", "/empty", "/redirect", "/stream"):
            first, again = site.post(path, "k"), site.post(path, "k")
            assert (first.status_code, first.content) == (again.status_code, again.content)
            assert again.headers.get_list("link") == first.headers.get_list("link")

    @pytest.mark.parametrize("place", ["outside", "inside"])
    def test_a_base_http_middleware_and_a_client_that_goes(self, serve, place):
        async def passing(request, call_next):
            return await call_next(request)

        site = serve(scope=None, **{place: (Middleware(BaseHTTPMiddleware, dispatch=passing),)})
        connection = site.connect("POST /slow HTTP/1.1\nIdempotency-Key: k", b"{}")
        site.gate.until_inside()
        connection.close()
        site.gate.go_on.set()
        site.until(lambda: site.record().status == "completed")

    @pytest.mark.parametrize("place", ["outside", "inside"])
    def test_compression(self, serve, place):
        site = serve(scope=None, **{place: (Middleware(GZipMiddleware, minimum_size=100),)})
        zipped = {"accept-encoding": "gzip"}
        first = site.post("/large", "k", headers=zipped)
        again = site.post("/large", "k", headers=zipped)
        plain = site.post("/large", "k", headers={"accept-encoding": "identity"})
        assert first.content == again.content == plain.content == b"x" * LARGE
        assert again.headers.get("content-encoding") == ("gzip" if place == "outside" else None)
        assert "content-encoding" not in plain.headers
        assert len(site.runs) == 1

    @pytest.mark.row("P12")
    def test_facts_of_the_request_travel_in_context_variables(self, serve):
        class Naming:
            def __init__(self, app):
                self.app = app

            async def __call__(self, scope, receive, send):
                name = dict(scope.get("headers", ())).get(b"x-request-id", b"").decode()
                token = REQUEST_ID.set(name)
                try:
                    await self.app(scope, receive, send)
                finally:
                    REQUEST_ID.reset(token)

        class Noting:
            def __init__(self, app):
                self.app = app

            async def __call__(self, scope, receive, send):
                site.facts.setdefault("ids", []).append(REQUEST_ID.get())
                await self.app(scope, receive, send)

        site = serve(scope=None, outside=(Middleware(Naming),), inside=(Middleware(Noting),))
        for name in ("one", "two"):
            site.post(key=name, headers={"x-request-id": name})
        assert site.facts["ids"] == ["one", "two"]
