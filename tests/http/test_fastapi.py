"""FastAPI: claimed after authentication, by a dependency."""

from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel

from oncekey import ConfigurationError, Once, current, current_async
from oncekey.http.asgi import IdempotencyMiddleware, claim
from oncekey.http.fastapi import claimed


class Order(BaseModel):
    item: str


async def user(x_user: Annotated[str | None, Header()] = None) -> str:
    if x_user is None:
        raise HTTPException(401)
    return x_user


@pytest.fixture
def runs():
    return []


@pytest.fixture
def client(runs):
    app = FastAPI()
    once = Once("memory://", observers=())
    app.add_middleware(IdempotencyMiddleware, once=once, claim="handler")

    @app.post("/orders", status_code=201)
    async def order(
        order: Order, name: Annotated[str, Depends(user)], attempt: Annotated[object, claimed(user)]
    ) -> dict[str, str]:
        assert attempt is current_async()
        runs.append((name, order.item))
        return {"item": order.item, "for": name}

    @app.post("/blocking", dependencies=[claimed(None)])
    def blocking(order: Order) -> dict[str, str]:
        runs.append(order.item)
        if order.item == "plain":
            return {}
        current().note(item=order.item)
        return {"key": current().downstream_key("charge")}

    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://shop")


def send(client, path="/orders", item="tea", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(path, json={"item": item}, headers={"Idempotency-Key": "k"} | named)


async def test_a_duplicate_does_not_reach_the_handler(client, runs):
    first, second = [await send(client, X_User="ann") for _ in range(2)]
    assert (first.status_code, first.json()) == (201, {"item": "tea", "for": "ann"})
    assert (second.status_code, second.content) == (201, first.content)
    assert second.headers["idempotent-replayed"] == "true"
    assert runs == [("ann", "tea")]


@pytest.mark.row("P10")
async def test_two_users_with_one_key_never_meet(client, runs):
    assert (await send(client, X_User="ann")).json()["for"] == "ann"
    assert (await send(client, X_User="bob")).json()["for"] == "bob"
    assert len(runs) == 2


async def test_who_is_not_authenticated_claims_nothing_and_sees_nothing(client, runs):
    await send(client, X_User="ann")
    refused = await send(client)
    assert refused.status_code == 401
    assert len(runs) == 1


async def test_another_request_under_the_key_is_refused(client, runs):
    await send(client, X_User="ann")
    refused = await send(client, item="gin", X_User="ann")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:oncekey:key-reused")
    assert len(runs) == 1


async def test_a_request_that_fastapi_refuses_frees_its_key(client, runs):
    wrong = await client.post("/orders", json={}, headers={"Idempotency-Key": "k", "X-User": "ann"})
    assert wrong.status_code == 422
    assert (await send(client, X_User="ann")).status_code == 201
    assert runs == [("ann", "tea")]


async def test_without_a_key_nothing_is_claimed(client, runs):
    for _ in range(2):
        await client.post("/blocking", json={"item": "plain"})
    assert runs == ["plain", "plain"]


async def test_blocking_handlers_see_their_attempt(client, runs):
    first, second = [await send(client, "/blocking") for _ in range(2)]
    assert first.json() == second.json()
    assert runs == ["tea"]


def test_a_wrong_scope_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="a dependency"):
        claimed("user")


async def test_claim_takes_a_request_that_a_middleware_has_seen():
    with pytest.raises(ConfigurationError, match="takes the request"):
        await claim("request", scope="ann")
    with pytest.raises(ConfigurationError, match="install IdempotencyMiddleware"):
        await claim({"type": "http"}, scope="ann")


async def test_a_dependency_that_ends_before_the_answer_can_still_fail_the_request(runs):
    async def transaction():
        yield
        raise OSError("the commit has failed")

    app = FastAPI()
    app.add_middleware(IdempotencyMiddleware, once=Once("memory://"), scope=None)

    @app.post("/orders")
    async def order(_: Annotated[None, Depends(transaction, scope="function")]) -> None:
        runs.append("tea")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        assert [(await send(client)).status_code for _ in range(2)] == [500, 500]
    assert len(runs) == 2
