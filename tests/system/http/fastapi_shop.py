"""A shop in FastAPI, whose document says what the middleware does."""
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from oncekey import Once
from oncekey.http.fastapi import install

LICENSE = {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}


class Order(BaseModel):
    """What somebody wants."""

    model_config = ConfigDict(extra="forbid", strict=True)
    item: str


class Ordered(Order):
    """What somebody gets."""

    number: int


def make(*, plain: bool = False) -> FastAPI:
    """Return the application, or the same without the middleware."""
    app = FastAPI(
        title="Shop",
        version="1.0.0",
        description="A shop.",
        license_info=LICENSE,
        contact={"name": "Ann", "url": "https://shop.test"},
        servers=[{"url": "https://api.shop.test"}],
        openapi_tags=[{"name": "orders", "description": "Orders."}],
    )
    numbers = iter(range(1, 1_000_000))
    if not plain:
        install(
            app,
            Once("memory://"),
            scope=None,
            routes=["/orders", "/orders/*"],
            required=True,
            docs_url="https://shop.test/keys",
        )

    @app.post("/orders", status_code=201, tags=["orders"])
    async def order(order: Order) -> Ordered:
        """Order something."""
        return Ordered(item=order.item, number=next(numbers))

    @app.get("/orders", tags=["orders"])
    async def orders() -> list[Ordered]:
        """List nothing."""
        return []

    return app
