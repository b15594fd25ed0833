"""A service for real clients and signers: `uvicorn tests.system.http.clients_site:app`.

`/orders` is under the profile `ietf`, `/v1/customers` under `stripe`, and `/hooks/{provider}` under
the provider's preset. The first answer to a key that begins with `lose-` is lost on its way:
a proxy says 502.
"""

from collections import Counter
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from oncekey import Once
from oncekey.http import by_authorization, presets
from oncekey.http.asgi import IdempotencyMiddleware

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - an example
TOKEN = "a token of this example"  # noqa: S105 - an example
runs: Counter[str] = Counter()
keys: list[str | None] = []
lost: set[str] = set()


async def create(request: Request) -> Response:
    keys.append(request.headers.get("idempotency-key"))
    runs[request.url.path] += 1
    made = {"id": f"cus_{sum(runs.values())}", "object": "customer"}
    return JSONResponse(made, 200 if request.url.path.startswith("/v1") else 201)


async def hook(request: Request) -> Response:
    runs[request.url.path] += 1
    return Response(status_code=204)


async def seen(_request: Request) -> Response:
    return JSONResponse({"runs": runs, "keys": keys})


class Loses:
    """A proxy that loses the first answer to what asks for it, and answers 502 instead."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = dict(scope.get("headers", ())).get(b"idempotency-key", b"").decode()
        if not key.startswith("lose-") or key in lost:
            await self.app(scope, receive, send)
            return
        lost.add(key)

        async def forget(message: Any) -> None: ...

        await self.app(scope, receive, forget)
        await JSONResponse({"error": {"message": "lost"}}, 502)(scope, receive, send)


def make() -> Any:
    once = Once("memory://")
    app: Any = Starlette(
        routes=[
            Route("/orders", create, methods=["POST"]),
            Route("/v1/customers", create, methods=["POST"]),
            Route("/hooks/{provider}", hook, methods=["POST"]),
            Route("/seen", seen),
        ]
    )
    profiles = {
        "svix": presets.svix(SECRET),
        "standard_webhooks": presets.standard_webhooks(SECRET),
        "slack": presets.slack(TOKEN),
        "twilio": presets.twilio(TOKEN),
        "stripe": presets.stripe(TOKEN),
    }
    for name, profile in profiles.items():
        app = IdempotencyMiddleware(app, once, profile=profile, routes=[f"/hooks/{name}"])
    app = IdempotencyMiddleware(
        app, once, profile="stripe", scope=by_authorization, routes=["/v1/*"]
    )
    app = IdempotencyMiddleware(app, once, scope=None, routes=["/orders"])
    return Loses(app)


app = make()
