"""What a client sends, in the key and in the body, stands in no log, no metric and no trace."""

import asyncio
import logging

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from oncekey import Once, current_async
from oncekey.core.key import stored_key
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.observe.log import LogObserver
from oncekey.observe.redaction import hashed
from oncekey.policy import Policy
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore
from tests.patience import until_async

SECRET = "sk-4242-secret-4242"  # noqa: S105 - the one that must not be seen
USER = "ann.of.secrets"


async def pay(request: Request) -> JSONResponse:
    body = await request.json()
    if body.get("note") == "fail":
        raise TimeoutError(body["card"])
    await current_async().note(paid=True)
    return JSONResponse({"card": body["card"]})


@pytest.fixture
def shop(watched):
    """A service as anybody would write it, and a way to ask it."""
    store = FaultyStore(MemoryStore())

    def open_shop(**settings):
        policy = settings.pop("policy", None)
        observers = settings.pop("observers", None) or watched.observers()
        once = Once(store, observers=observers, policy=policy)
        middleware = Middleware(IdempotencyMiddleware, once=once, **settings)
        app = Starlette(routes=[Route("/pay", pay, methods=["POST"])], middleware=[middleware])
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://shop")

    open_shop.store = store
    return open_shop


def not_told(watched):
    told = watched.everything()
    assert len(told) > 10
    assert not [one for one in told if "secret" in one.lower()]


async def ask(client, *, key=SECRET, **body):
    headers = {"Idempotency-Key": f'"{key}"'}
    sent = {"card": SECRET, "userId": USER, "idempotencyKey": SECRET, **body}
    return (await client.post("/pay", json=sent, headers=headers)).status_code


async def test_neither_key_nor_body_is_told_whatever_happens(watched, shop):
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the client's own, which is not ours
    client = shop(scope=lambda request: USER, policy=Policy(on_crash="hold"))
    assert await ask(client) == 200
    assert await ask(client) == 200
    assert await ask(client, card="another secret") == 422
    shop.store.cut_off("claim", 9)
    assert await ask(client) == 503
    shop.store.heal()
    names = {span.name for span in watched.exporter.get_finished_spans()}
    assert names >= {"oncekey.run", "oncekey.replay", "oncekey.refuse", "oncekey.claim"}
    not_told(watched)


async def test_a_request_that_dies_or_is_refused_tells_no_more(watched, shop):
    client = shop(scope=None, policy=Policy(on_crash="hold"))
    assert await ask(client, note="fail") == 500
    assert await ask(client, note="fail") == 409
    going_on = shop.store.block("settle")
    first = asyncio.ensure_future(ask(client, key="secret 2"))
    await until_async(lambda: shop.store.calls["settle"])
    assert await ask(client, key="secret 2") == 409
    going_on.set()
    assert await first == 200
    not_told(watched)


async def test_whoever_wants_the_keys_gets_them(watched, shop):
    client = shop(scope=None, observers=[LogObserver(redact=False)])
    assert await ask(client) == 200
    assert [one for one in watched.lines() if SECRET in one]  # so that the tests above can fail


async def test_a_key_and_a_user_out_of_the_body_are_not_told_either(watched, shop):
    client = shop(profile="payments")
    assert await ask(client) == 200
    assert await ask(client) == 200
    not_told(watched)


async def test_what_happened_is_told_under_a_name_that_stays_the_same(watched, shop, caplog):
    client = shop(profile="payments")
    assert await ask(client) == 200
    assert await ask(client) == 200
    told = [one for one in caplog.records if one.name == "oncekey"]
    name = hashed(stored_key(USER, SECRET))
    assert [one.getMessage() for one in told] == [
        f"task claimed [{name}]",
        f"task completed [{name}]",
        f"duplicate task skipped [{name}]",
    ]
    assert {one.idempotency_scope for one in told} == {hashed(USER)}
    assert {one.task_type for one in told} == {"POST /pay"}
