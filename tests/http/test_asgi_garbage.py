"""What a request leaves behind in the process: no attempt that only the collector would find."""

import gc
from weakref import ref

import pytest
from starlette.responses import PlainTextResponse

from oncekey import Once, current_async
from oncekey.http.asgi import IdempotencyMiddleware, claim
from tests.http.suite.wire import ask


@pytest.fixture
def once():
    return Once("memory://", observers=[])


@pytest.fixture
def uncollected():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("settings", [{"scope": None}, {"claim": "handler"}])
async def test_an_attempt_is_gone_with_its_request(once, uncollected, settings):
    attempts = []

    async def app(scope, receive, send):
        claimed = await claim(scope, scope="user") if "claim" in settings else current_async()
        attempts.append(ref(claimed))
        await PlainTextResponse("done")(scope, receive, send)

    assert (await ask(IdempotencyMiddleware(app, once, **settings))).body == b"done"
    assert [attempt() for attempt in attempts] == [None]


async def test_a_handler_may_end_its_attempt_in_a_block_of_its_own(once):
    async def app(scope, receive, send):
        async with await claim(scope, scope="user"):
            pass
        await PlainTextResponse("done")(scope, receive, send)

    assert (await ask(IdempotencyMiddleware(app, once, claim="handler"))).body == b"done"
