"""The payment service: POST /payments, safe to retry.

Policy A: a charge that failed is an answer like any other, and is kept. A client that wants to try
again with another card sends a new key. (Policy B, `failures="forgotten"`, gives the key back; it
is only right where a failure surely moved no money.)
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.payments.checks import InvalidRequestError, Payment, checked
from examples.payments.document import DOCUMENT
from examples.payments.gateway import Charge, Gateway
from examples.payments.tracing import RequestIds, request_id
from oncekey import Done, LeaseLostError, NotDone, Once, Record, StoreError, current_async
from oncekey.http import PAYMENTS, Reply, Words
from oncekey.http.asgi import IdempotencyMiddleware, claim
from oncekey.http.openapi import describe

Failures = Literal["kept", "forgotten"]

TIME_OUT = 0.4
PROFILE = PAYMENTS.replace(
    fingerprint=("/userId", "/amount", "/currency"),
    words={
        **PAYMENTS.words,
        "store-unavailable": Words(
            status=503,
            body={"error": "downstream_unavailable", "service": "idempotency store"},
        ),
    },
)


class Service:
    """The handlers, and what they need."""

    def __init__(
        self, gateway: Gateway, failures: Failures, per_second: int, time_out: float
    ) -> None:
        """`per_second` requests of each user are taken; the gateway has `time_out` seconds."""
        self._gateway = gateway
        self._forgets = failures == "forgotten"
        self._per_second = per_second
        self._time_out = time_out
        self._second, self._asked = 0.0, Counter[str]()

    async def pay(self, request: Request) -> Response:
        """POST /payments."""
        try:
            payment = checked(await _json(request))
        except InvalidRequestError as error:
            return _error(400, "validation", field=error.field, message=error.message)
        wait = self._too_fast(payment.user)
        if wait:
            return _error(429, "rate_limited", retryAfterMs=wait)
        # From here on the request counts. A duplicate is answered by the middleware.
        await claim(request, scope=payment.user)
        return await self._charge(payment)

    async def _charge(self, payment: Payment) -> Response:
        attempt = current_async()
        # Our own reference: the same in every attempt, and written down before the money moves.
        reference = attempt.downstream_key("charge")
        await attempt.note(reference=reference, request_id=request_id.get())
        try:
            async with asyncio.timeout(self._time_out):
                charge = await self._gateway.charge(
                    reference, payment.amount, payment.currency, request_id.get()
                )
        except TimeoutError:
            # 504: it may have happened. The next attempt asks the gateway before it charges.
            return _error(504, "timeout", operation="charge", ms=round(self._time_out * 1000))
        if charge.reason is not None and self._forgets:
            await attempt.release(charge.reason)
        return JSONResponse(answer(charge))

    async def reconcile(self, record: Record) -> Done | NotDone:
        """How an attempt ended that never said so: the gateway's book knows."""
        reference = record.notes.get("reference")
        charge = None if reference is None else await self._gateway.find(reference)
        if charge is None or (charge.reason is not None and self._forgets):
            return NotDone()
        return Done(Reply.json(200, answer(charge)))

    def _too_fast(self, user: str) -> int:
        """Milliseconds until the user may ask again."""
        now = time.monotonic()
        if now >= self._second + 1:
            self._second, self._asked = now, Counter()
        self._asked[user] += 1
        if self._asked[user] <= self._per_second:
            return 0
        return max(1, round((self._second + 1 - now) * 1000))


def answer(charge: Charge) -> dict[str, Any]:
    """What the client is told about a charge."""
    if charge.reason is not None:
        return {"status": "failed", "reason": charge.reason}
    return {
        "paymentId": f"pay_{charge.number:06}",
        "status": "succeeded",
        "chargedAmount": charge.amount,
        "currency": charge.currency,
    }


async def store_down(_request: Request, _error: Exception) -> Response:
    """What is said where the middleware is not the one to say it."""
    words = PROFILE.says("store-unavailable")
    return JSONResponse(words.body, words.status, headers={"retry-after": "1"})


def make_app(
    once: Once,
    gateway: Gateway,
    *,
    failures: Failures = "kept",
    per_second: int = 1000,
    time_out: float = TIME_OUT,
    **settings: Any,
) -> Starlette:
    """The service on a store and a gateway. It closes the store when it stops."""
    service = Service(gateway, failures, per_second, time_out)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await once.aclose()

    protection: dict[str, Any] = {
        "once": once,
        "profile": PROFILE,
        "routes": ["/payments"],
        "claim": "handler",  # after the request has been checked
        "reconcile": service.reconcile,
        # This gateway lives in our process: what was cut off cannot happen later. Leave `quiet`
        # alone where it is far away, unless it recognises the reference.
        "quiet": 0,
        **settings,
    }

    async def openapi(_request: Request) -> Response:
        return JSONResponse(describe(DOCUMENT, IdempotencyMiddleware(made, **protection)))

    made = Starlette(
        routes=[
            Route("/payments", service.pay, methods=["POST"]),
            Route("/openapi.json", openapi),
        ],
        middleware=[
            Middleware(RequestIds),
            Middleware(IdempotencyMiddleware, **protection),
        ],
        # What `note` may raise, before the money moves.
        exception_handlers={StoreError: store_down, LeaseLostError: store_down},
        lifespan=lifespan,
    )
    return made


def app() -> Starlette:
    """For `uvicorn --factory examples.payments.app:app`, configured by the environment."""
    book = Path(os.environ.get("PAYMENTS_BOOK", "gateway.db"))
    return make_app(
        Once(),
        Gateway(book),
        per_second=int(os.environ.get("PAYMENTS_PER_SECOND", "1000")),
        lease=os.environ.get("PAYMENTS_LEASE", "30s"),
    )


def _error(status: int, error: str, **facts: object) -> Response:
    return JSONResponse({"error": error, **facts}, status_code=status)


async def _json(request: Request) -> Any:
    try:
        return await request.json()
    except (ValueError, RecursionError):
        return None
