"""aiohttp: what its handlers do otherwise than those of other frameworks."""

import asyncio
import gzip
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import FormData, web
from aiohttp.test_utils import TestClient, TestServer

from oncekey import ConfigurationError, Once
from oncekey.http import EVERYBODY, by_user
from oncekey.http.aiohttp import USER, claim, install

KEY = {"Idempotency-Key": "k"}


@asynccontextmanager
async def client_of(handler: Any, *before: Any, **settings: Any):
    """A client of an application with this handler, and an application with others before it."""
    app = web.Application(middlewares=before)
    install(app, Once("memory://"), **{"scope": None, **settings})
    app.router.add_post("/orders", getattr(handler, "handle", handler))
    async with TestClient(TestServer(app)) as client:
        yield client


class Counted:
    """A handler that counts its runs."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.runs = 0

    async def handle(self, request: web.Request) -> Any:
        self.runs += 1
        made = self.answer(request)
        return await made if asyncio.iscoroutine(made) else made


async def twice(client: Any, **more: Any) -> list[Any]:
    found = []
    for _ in range(2):
        async with client.post("/orders", headers=KEY, allow_redirects=False, **more) as answer:
            found.append((answer.status, await answer.read(), answer.headers.copy()))
    return found


async def test_a_response_that_is_raised_is_kept_like_any_other():
    def answer(request):
        raise web.HTTPSeeOther("/orders/1")

    async with client_of(Counted(answer)) as client:
        first, again = await twice(client)
    assert (first[0], again[0]) == (303, 303)
    assert again[2]["Location"] == "/orders/1"
    assert again[2]["Idempotent-Replayed"] == "true"


async def test_a_refusal_that_is_raised_frees_the_key():
    def answer(request):
        raise web.HTTPBadRequest(text="no")

    handler = Counted(answer)
    async with client_of(handler) as client:
        first, again = await twice(client)
    assert (first[0], again[0], handler.runs) == (400, 400, 2)
    assert "Idempotent-Replayed" not in again[2]


async def test_a_form_with_a_file_can_be_read_as_ever():
    async def answer(request):
        fields = await request.post()
        return web.Response(text=f"{fields['item']} {fields['file'].file.read().decode()}")

    def form():
        made = FormData()
        made.add_field("item", "tea")
        made.add_field("file", b"content", filename="a.txt")
        return made

    handler = Counted(answer)
    async with client_of(handler) as client:
        found = []
        for _ in range(2):  # with another boundary each
            async with client.post("/orders", headers=KEY, data=form()) as said:
                found.append((said.status, await said.text()))
    assert found == [(200, "tea content")] * 2
    assert handler.runs == 1


async def test_a_stream_that_the_handler_sends_is_not_replayed_and_does_not_run_again():
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"part ")
        await response.write(b"by part")
        return response

    handler = Counted(answer)
    async with client_of(handler) as client:
        first, again = await twice(client)
    assert first[:2] == (200, b"part by part")
    assert again[0] == 409
    assert b"response-not-replayable" in again[1]
    assert handler.runs == 1


async def test_a_claim_after_the_response_has_begun_is_refused():
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        with pytest.raises(ConfigurationError, match="before the response begins"):
            await claim(request, scope="ann")
        await response.write(b"part by part")
        return response

    handler = Counted(answer)
    async with client_of(handler, scope=None, claim="handler") as client:
        assert [status for status, *_ in await twice(client)] == [200, 200]
    assert handler.runs == 2


async def test_a_stream_of_an_attempt_that_lost_its_record_is_not_sent():
    once = Once("memory://")

    async def answer(request):
        for record in [one async for one in once.scan_async()]:
            await once.forget_async(record.key, scope=record.scope, force=True)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"part by part")
        return response

    app = web.Application()
    install(app, once, scope=None)
    app.router.add_post("/orders", answer)
    async with TestClient(TestServer(app)) as client, client.post("/orders", headers=KEY) as said:
        assert said.status == 409
        assert (await said.json(content_type=None))["type"] == "urn:oncekey:outcome-unknown"


async def test_a_file_is_sent_and_not_replayed(tmp_path):
    path = tmp_path / "report.txt"
    path.write_text("a report")
    handler = Counted(lambda request: web.FileResponse(path))
    async with client_of(handler) as client:
        first, again = await twice(client)
    assert first[:2] == (200, b"a report")
    assert again[0] == 409
    assert handler.runs == 1


async def test_what_is_kept_is_not_compressed():
    def answer(request):
        response = web.Response(text="tea " * 1000)
        response.enable_compression()
        return response

    async with client_of(Counted(answer)) as client:
        client.session._auto_decompress = False
        async with client.post("/orders", headers={**KEY, "Accept-Encoding": "gzip"}) as first:
            assert gzip.decompress(await first.read()) == b"tea " * 1000
        async with client.post("/orders", headers={**KEY, "Accept-Encoding": "identity"}) as again:
            assert await again.read() == b"tea " * 1000
            assert again.headers["Idempotent-Replayed"] == "true"


async def test_the_owner_is_the_user_that_another_middleware_has_found():
    @web.middleware
    async def authenticated(request, handler):
        request[USER] = request.headers["X-User"]
        return await handler(request)

    handler = Counted(lambda request: web.Response(text=str(request[USER])))
    async with client_of(handler, authenticated, scope=by_user) as client:
        said = []
        for user in ("ann", "bob", "ann"):
            async with client.post("/orders", headers={**KEY, "X-User": user}) as answer:
                said.append(await answer.text())
    assert said == ["ann", "bob", "ann"]
    assert handler.runs == 2


async def test_a_handler_claims_after_it_has_authenticated():
    runs = []

    async def answer(request):
        if "X-User" not in request.headers:
            raise web.HTTPUnauthorized
        attempt = await claim(request, scope=request.headers["X-User"])
        runs.append(attempt.key)
        return web.Response(text=request.headers["X-User"])

    async with client_of(answer, claim="handler") as client:
        statuses = []
        for user in ("ann", "ann", None, "bob"):
            headers = KEY if user is None else {**KEY, "X-User": user}
            async with client.post("/orders", headers=headers) as said:
                statuses.append((said.status, said.headers.get("Idempotent-Replayed")))
    assert statuses == [(200, None), (200, "true"), (401, None), (200, None)]
    assert runs == ["k", "k"]


async def test_nothing_of_the_body_is_read_before_a_handler_claims():
    """A client that is refused need not send it."""

    async def answer(request):
        if "Authorization" not in request.headers:
            raise web.HTTPUnauthorized
        await claim(request, scope=EVERYBODY)
        return web.Response(text=f"{len(await request.read())}")

    sent = asyncio.Event()

    async def body():
        yield b"first"
        await sent.wait()
        yield b"second"

    async with client_of(answer, claim="handler") as client:
        async with client.post("/orders", headers=KEY, data=body()) as refused:
            assert refused.status == 401
        sent.set()
        known = KEY | {"Authorization": "ann"}
        for replayed in (None, "true"):
            async with client.post("/orders", headers=known, data=body()) as found:
                assert (found.status, await found.text()) == (200, "11")
                assert found.headers.get("Idempotent-Replayed") == replayed


@pytest.mark.parametrize("way", ["json", "stream"])
async def test_a_handler_may_read_the_whole_body_before_it_claims_but_not_a_part(way):
    async def answer(request):
        if way == "json":
            await request.json()
        else:
            await request.content.read(2)
        try:
            await claim(request, scope=EVERYBODY)
        except ConfigurationError as error:
            return web.Response(text=str(error))
        return web.Response(text=str(await request.json()))

    async with client_of(answer, claim="handler") as client:
        (_, first, _), (_, again, headers) = await twice(client, json={"item": "tea"})
        if way == "stream":
            assert first == b"a part of the body was read before the claim; claim first"
            return
        assert first == again == b"{'item': 'tea'}"
        assert headers["Idempotent-Replayed"] == "true"
        async with client.post("/orders", headers=KEY, json={"item": "gin"}) as other:
            assert other.status == 422


async def test_without_the_middleware_nothing_can_be_claimed():
    found = []

    async def answer(request):
        try:
            await claim(request, scope=EVERYBODY)
        except ConfigurationError as error:
            found.append(str(error))
        return web.Response()

    app = web.Application()
    app.router.add_post("/orders", answer)
    async with TestClient(TestServer(app)) as client, client.post("/orders", headers=KEY):
        pass
    assert found == ["nothing can be claimed here: install the middleware with claim='handler'"]


async def test_a_client_that_goes_away_does_not_stop_the_work():
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request):
        inside.set()
        await go_on.wait()
        return web.Response(text="done")

    handler = Counted(answer)
    async with client_of(handler, wait="5min") as client:
        gone = asyncio.create_task(twice(client))
        await inside.wait()
        gone.cancel()
        go_on.set()
        _, again = await twice(client)
    assert again[:2] == (200, b"done")
    assert handler.runs == 1


@pytest.mark.parametrize("settings", [{"scope": 7}, {"nonsense": 1}])
def test_settings_are_checked_when_it_is_installed(settings):
    with pytest.raises(ConfigurationError):
        install(web.Application(), Once("memory://"), **settings)


async def test_of_two_middlewares_the_one_that_covers_a_request_is_claimed_from():
    async def answer(request):
        assert await claim(request, scope="ann") is not None
        return web.Response(text=request.path)

    app = web.Application()
    for path in ("/orders", "/refunds"):
        install(app, Once("memory://"), claim="handler", routes=[path])
        app.router.add_post(path, answer)
    async with TestClient(TestServer(app)) as client:
        for path in ("/orders", "/refunds"):
            async with client.post(path, headers=KEY) as first:
                assert await first.text() == path
            async with client.post(path, headers=KEY) as again:
                assert again.headers["Idempotent-Replayed"] == "true"


async def test_an_outer_middleware_may_read_the_body():
    @web.middleware
    async def reading(request, handler):
        assert await request.read()
        return await handler(request)

    async def answer(request):
        return web.json_response(await request.json())

    async with client_of(counted := Counted(answer), reading) as client:
        first, again = await twice(client, json={"item": "tea"})
        async with client.post("/orders", headers=KEY, json={"item": "cake"}) as other:
            assert other.status == 422
    assert first[:2] == again[:2] == (200, b'{"item": "tea"}')
    assert counted.runs == 1


async def test_a_handler_that_returns_no_response_has_failed():
    async with client_of(counted := Counted(lambda request: None)) as client:
        first, again = await twice(client)
    assert (first[0], again[0]) == (500, 500)
    assert counted.runs == 2


async def test_an_object_is_no_owner(caplog):
    @web.middleware
    async def authentication(request, handler):
        request[USER] = object()  # instead of its id
        return await handler(request)

    handler = Counted(lambda request: web.Response())
    async with client_of(handler, authentication, scope=by_user) as client:
        first, again = await twice(client)
    assert (first[0], again[0], handler.runs) == (500, 500, 0)
    assert "scope= must find a name" in caplog.text
