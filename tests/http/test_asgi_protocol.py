"""What is not covered, and applications that are made of nothing but the protocol."""

import gzip
from types import SimpleNamespace

import pytest
from starlette.responses import FileResponse
from starlette.websockets import WebSocket

from oncekey import ConfigurationError, Once
from oncekey.core.requests import Scan
from oncekey.http import by_user
from oncekey.http.asgi import IdempotencyMiddleware, claim
from oncekey.stores import MemoryStore
from tests.http.suite.wire import Wire, answering, ask, record, scope_of


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def once(store):
    return Once(store, observers=[])


class TestUntouched:
    async def test_what_is_not_covered_gets_the_servers_own_objects(self, once):
        seen = []

        async def app(*given):
            seen.append(given)

        wire = Wire()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        receive, send = wire.receive, wire.send
        for changes in ({"method": "GET"}, {"headers": []}, {"type": "websocket"}):
            scope = scope_of(**changes)
            await middleware(scope, receive, send)
            assert seen.pop() == (scope, receive, send)

    async def test_a_websocket_passes(self, once):
        async def echo(scope, receive, send):
            socket = WebSocket(scope, receive, send)
            await socket.accept()
            await socket.send_text(await socket.receive_text())

        messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"}]
        wire = await ask(IdempotencyMiddleware(echo, once, scope=None), *messages, type="websocket")
        assert [message["type"] for message in wire.got] == ["websocket.accept", "websocket.send"]
        assert wire.got[1]["text"] == "hello"

    async def test_the_lifespan_passes(self, once):
        async def app(scope, receive, send):
            assert (await receive())["type"] == "lifespan.startup"
            await send({"type": "lifespan.startup.complete"})

        wire = Wire({"type": "lifespan.startup"})
        middleware = IdempotencyMiddleware(app, once, scope=None)
        await middleware({"type": "lifespan"}, wire.receive, wire.send)
        assert wire.got == [{"type": "lifespan.startup.complete"}]

    async def test_a_covered_response_cannot_go_past_us(self, once, tmp_path):
        (tmp_path / "a.txt").write_text("in a file")
        seen = []

        async def app(scope, receive, send):
            seen.append(scope["extensions"])
            await FileResponse(tmp_path / "a.txt")(scope, receive, send)

        names = ["pathsend", "trailers", "push", "zerocopysend", "debug"]
        extensions = {f"http.response.{name}": {} for name in names}
        middleware = IdempotencyMiddleware(app, once, scope=None)
        first = await ask(middleware, extensions=extensions)
        again = await ask(middleware, extensions=extensions)
        assert first.body == again.body == b"in a file"
        assert [one.keys() for one in seen] == [{"http.response.debug"}]


class TestPlainApplications:
    """Applications that are made of nothing but the protocol."""

    async def test_a_response_need_not_have_headers(self, once):
        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})

        middleware = IdempotencyMiddleware(app, once, scope=None)
        assert (await ask(middleware)).status == 204
        again = await ask(middleware)
        assert again.status == 204
        assert (b"idempotent-replayed", b"true") in again.got[0]["headers"]

    async def test_names_of_headers_may_be_written_as_one_likes(self, once):
        app = answering(headers=[(b"Content-Type", b"Text/Event-Stream"), (b"Set-Cookie", b"a=1")])
        middleware = IdempotencyMiddleware(app, once, scope=None)
        assert (await ask(middleware)).status == 200
        assert (await ask(middleware)).status == 409

    async def test_a_response_that_never_ends_is_no_response(self, once, store):
        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})

        wire = await ask(IdempotencyMiddleware(app, once, scope=None))
        assert not wire.got
        assert record(store).status == "released"

    async def test_a_body_in_pieces_is_given_on_whole(self, once):
        seen = []

        async def app(scope, receive, send):
            more = True
            while more:
                message = await receive()
                seen.append(message["body"])
                more = message["more_body"]
            await answering()(scope, receive, send)

        parts = [
            {"type": "http.request", "body": b"a" * 700_000, "more_body": True},
            {"type": "http.request", "body": b"b" * 700_000, "more_body": True},
            {"type": "http.request"},
        ]
        await ask(IdempotencyMiddleware(app, once, scope=None), *parts)
        assert b"".join(seen) == b"a" * 700_000 + b"b" * 700_000

    async def test_a_path_may_hold_anything(self, once, store):
        app = answering()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        for path in ("/grüße", "/a b", "/a:b", "/%", "/" + "x" * 3000, "/\n"):
            app.runs = 0
            assert (await ask(middleware, path=path)).status == 200, path
            assert (await ask(middleware, path=path)).status == 200, path
            assert app.runs == 1, path

    async def test_a_handler_may_claim_twice(self, once):
        attempts = []

        async def app(scope, receive, send):
            attempts.extend([await claim(scope, scope="ann"), await claim(scope, scope="ann")])
            await answering()(scope, receive, send)

        await ask(IdempotencyMiddleware(app, once, claim="handler"))
        assert attempts[0] is attempts[1] is not None

    async def test_a_claim_after_the_response_has_begun_is_refused(self, once):
        refused = []

        async def app(scope, receive, send):
            await answering()(scope, receive, send)
            with pytest.raises(ConfigurationError, match="before the response begins"):
                await claim(scope, scope="ann")
            refused.append(list(once.scan()))

        assert (await ask(IdempotencyMiddleware(app, once, claim="handler"))).status == 200
        assert refused == [[]]

    async def test_where_nothing_is_covered_a_claim_is_none(self, once):
        claims = []

        async def app(scope, receive, send):
            claims.append(await claim(scope, scope="ann"))
            await answering()(scope, receive, send)

        await ask(IdempotencyMiddleware(app, once, claim="handler", routes=["/other"]))
        assert claims == [None]

    async def test_a_claim_without_the_middleware_says_so(self):
        with pytest.raises(ConfigurationError, match="install IdempotencyMiddleware"):
            await claim(scope_of())

    async def test_a_claim_with_a_scope_after_the_middleware_has_claimed_is_refused(self, once):
        async def app(scope, receive, send):
            with pytest.raises(ConfigurationError, match="claimed already"):
                await claim(scope, scope="ann")
            assert await claim(scope) is not None
            await answering()(scope, receive, send)

        await ask(IdempotencyMiddleware(app, once, scope=None))

    async def test_what_a_framework_makes_of_an_answer_is_not_sent(self, once):
        async def app(scope, receive, send):
            try:
                await claim(scope, scope="ann")
            except Exception:  # noqa: BLE001 - as a framework does
                await answering(status=500)(scope, receive, send)
            else:
                await answering()(scope, receive, send)

        middleware = IdempotencyMiddleware(app, once, claim="handler")
        first, again = [await ask(middleware) for _ in range(2)]
        assert (again.status, again.body) == (first.status, first.body)

    async def test_a_claim_needs_the_request(self):
        with pytest.raises(ConfigurationError, match="not str"):
            await claim("the request")

    @pytest.mark.parametrize(
        ("user", "scope"),
        [
            ("ann", "ann:POST:/"),
            (7, "7:POST:/"),
            (SimpleNamespace(identity="ann", id=7), "ann:POST:/"),
            (SimpleNamespace(pk=7, username="ann"), "7:POST:/"),
            (SimpleNamespace(username="ann"), "ann:POST:/"),
            (SimpleNamespace(id=7, is_authenticated=False), None),
            (None, None),
        ],
    )
    async def test_by_user_knows_who_it_is(self, once, store, user, scope):
        await ask(IdempotencyMiddleware(answering(), once, scope=by_user), user=user)
        assert [one.scope for one in store.scan(Scan()).records] == ([scope] if scope else [])

    async def test_by_user_does_not_guess(self, once):
        middleware = IdempotencyMiddleware(answering(), once, scope=by_user)
        with pytest.raises(ConfigurationError, match="cannot tell who a SimpleNamespace is"):
            await ask(middleware, user=SimpleNamespace(email="ann@shop.example"))

    async def test_what_is_no_part_of_the_response_passes_at_once(self, once):
        async def app(scope, receive, send):
            await send({"type": "http.response.debug", "info": {}})
            assert [message["type"] for message in wire.got] == ["http.response.debug"]
            await answering()(scope, receive, send)

        wire = Wire()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        await middleware(scope_of(), wire.receive, wire.send)
        assert len(wire.got) == 3

    async def test_by_user_needs_somebody_to_authenticate(self, once):
        middleware = IdempotencyMiddleware(answering(), once, scope=by_user)
        with pytest.raises(ConfigurationError, match="by_user found no user"):
            await ask(middleware)

    async def test_a_response_of_the_application_that_is_compressed_is_kept_as_it_is(self, once):
        zipped = gzip.compress(b"done")
        app = answering(headers=[(b"content-encoding", b"gzip")], body=zipped)
        middleware = IdempotencyMiddleware(app, once, scope=None)
        await ask(middleware)
        again = await ask(middleware)
        assert again.body == zipped
        assert (b"content-encoding", b"gzip") in again.got[0]["headers"]
