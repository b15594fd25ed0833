"""stripe-python, unmodified, against an application under the profile `stripe`."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import stripe
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from oncekey import Once
from oncekey.http import by_authorization
from oncekey.http.asgi import IdempotencyMiddleware
from tests.http.suite.site import WHICH

# How stripe-python hands its form to httpx.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

SITE = "stripe"


class Network:
    """What lies between the client and the application, and spoils the first answer."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.spoil: str | None = None
        self.statuses: list[int] = []
        self.seen_in_progress = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        spoil, self.spoil = self.spoil, None
        if spoil == "refuse":  # the application never hears of it
            await JSONResponse({"error": {"type": "api_error"}}, 500)(scope, receive, send)
            return

        async def spoiled(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
                if message["status"] == 409:
                    self.seen_in_progress.set()
            if spoil == "drop":
                receive.__self__.transport.abort()  # uvicorn's connection to this client
                return
            if spoil == "500" and message["type"] == "http.response.start":
                message = {**message, "status": 500}
            await send(message)

        await self.app(scope, receive, spoiled)


class Shop:
    """The application: a charge for each request that runs."""

    def __init__(self) -> None:
        self.charges = 0
        self.broken = self.waits = False
        app = Starlette(
            routes=[Route("/v1/payment_intents", self.charge, methods=["POST"])],
            middleware=[
                Middleware(
                    IdempotencyMiddleware,
                    once=Once("memory://"),
                    profile="stripe",
                    scope=by_authorization,
                )
            ],
        )
        self.network = Network(app)

    async def charge(self, request: Request) -> Response:
        form = await request.form()
        if self.waits:
            await self.network.seen_in_progress.wait()
        self.charges += 1
        if self.broken:
            raise ValueError("the handler failed")
        return JSONResponse(
            {
                "id": f"pi_{self.charges}",
                "object": "payment_intent",
                "amount": int(str(form["amount"])),
                "currency": form["currency"],
            }
        )


@pytest.fixture
def shop(servers):
    apps, _ = servers("asgi")
    shop = Shop()
    apps[SITE] = shop.network
    yield shop
    del apps[SITE]


@pytest.fixture
def base(servers, monkeypatch):
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    monkeypatch.setenv("NO_PROXY", "*")
    _, (host, port) = servers("asgi")
    return f"http://{host}:{port}"


@pytest.fixture(params=["blocking", "coroutines"])
def pay(request, base):
    """Pays with stripe's own client, in either of its colours."""
    if request.param == "blocking":
        return partial(blocking, base)
    return lambda *args, **more: asyncio.run(coroutine(base, *args, **more))


def blocking(base: str, key: str | None = None, **fields: Any) -> Any:
    http = stripe.RequestsClient()
    try:
        return payments(base, http).create(params(fields), options(key))
    finally:
        http.close()


async def coroutine(base: str, key: str | None = None, **fields: Any) -> Any:
    http = stripe.HTTPXClient()
    try:
        return await payments(base, http).create_async(params(fields), options(key))
    finally:
        await http.close_async()


def payments(base: str, http: Any) -> Any:
    return stripe.StripeClient(
        "sk_test_ann", base_addresses={"api": base}, http_client=http, max_network_retries=2
    ).v1.payment_intents


def params(fields: dict[str, Any]) -> dict[str, Any]:
    return {"amount": 100, "currency": "usd", **fields}


def options(key: str | None) -> dict[str, Any]:
    return {"headers": {WHICH: SITE}, **({"idempotency_key": key} if key else {})}


@pytest.mark.parametrize("spoil", ["refuse", "drop", "500"])
def test_its_automatic_retry_charges_once(shop, pay, spoil):
    shop.network.spoil = spoil
    intent = pay()
    assert intent.id == "pi_1"
    replayed = intent.last_response.headers.get("Idempotent-Replayed")
    assert replayed == (None if spoil == "refuse" else "true")
    assert shop.charges == 1


def test_it_asks_again_while_the_first_is_in_progress(shop, pay):
    shop.waits = True
    with ThreadPoolExecutor(2) as both:
        intents = list(both.map(lambda _: pay("order-17"), range(2)))
    assert [intent.id for intent in intents] == ["pi_1", "pi_1"]
    assert 409 in shop.network.statuses
    assert shop.charges == 1


def test_a_repeat_with_the_same_key_is_visibly_a_replay(shop, pay):
    first, again = pay("order-17"), pay("order-17")
    assert again == first
    assert "Idempotent-Replayed" not in first.last_response.headers
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert again.last_response.headers["Idempotency-Key"] == "order-17"
    assert shop.charges == 1


def test_reuse_with_other_parameters_raises_its_own_error(shop, pay):
    pay("order-17")
    with pytest.raises(stripe.IdempotencyError) as refused:
        pay("order-17", amount=200)
    assert refused.value.http_status == 400
    assert shop.network.statuses == [200, 400]  # it did not try again
    assert shop.charges == 1


def test_a_failure_that_is_kept_is_final(shop, pay):
    shop.broken = True
    for _ in range(2):
        with pytest.raises(stripe.APIError) as failed:
            pay("order-17")
        assert failed.value.http_status == 500
    assert shop.network.statuses == [500, 500]  # told that it is final, it did not try again
    assert shop.charges == 1


def test_calls_without_a_key_of_their_own_are_two(shop, pay):
    assert [pay().id, pay().id] == ["pi_1", "pi_2"]
