"""Whatever is sent to them, the services answer, and never with a 500.

The applications are called as an ASGI server calls them, so that headers and bodies can hold what
no proper client would send.
"""

import asyncio
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.payments import app as payments
from examples.payments.gateway import Gateway
from examples.webhooks import app as webhooks
from oncekey import Once, current_async
from oncekey.http import IETF, by_authorization
from oncekey.http.asgi import IdempotencyMiddleware, claim

KNOWN = (200, 201, 202, 400, 401, 404, 405, 409, 413, 415, 422, 429, 504)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "QUERY")
KINDS = (
    *(b"application/json", b"application/problem+json; charset=utf-16", b"text/plain", b""),
    *(b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=b", b"\xff"),
    *(b"multipart/form-data; boundary=", b'multipart/form-data; boundary="\xe9"', b"; ;="),
)


async def ask(app: Any, method: str, path: str, headers: Any, chunks: list[bytes]) -> int:
    """The status of the answer; whatever the application raises comes through."""
    left = list(chunks) or [b""]
    statuses: list[int] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not left:
            await gone.wait()
            return {"type": "http.disconnect"}
        chunk = left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            for name, value in message["headers"]:
                assert isinstance(name, bytes)
                assert b"\n" not in value
                assert b"\r" not in value

    query = b""
    if "?" in path:
        path, _, text = path.partition("?")
        query = text.encode("utf-8", "surrogatepass")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "scheme": "http",
        "headers": headers,
        "server": ("shop.example", 80),
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    (status,) = statuses
    return status


# What is sent

keys = st.one_of(
    st.sampled_from([b"key-0001", b"key-0002", b'"key-0001"', b"", b'"', b"a,b", b"k" * 255]),
    st.binary(max_size=12),
    st.text("abc;=\"\\, \t'", max_size=12).map(str.encode),
)
bodies = st.one_of(
    st.binary(max_size=64),
    st.sampled_from([b"{" * 5000, b"[" * 50_000, b"9" * 5000, b"1e999999999", b'{"a":1,"a":2}']),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
)
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**53),
    st.just(10**400),
    st.floats(),
    st.text(max_size=12),
    st.lists(st.integers(), max_size=2),
)
payment = st.fixed_dictionaries(
    {
        "userId": st.sampled_from(["u1", "u2", "ü/:%{}", " "]) | odd,
        "amount": st.sampled_from([100, 101, 98, 22, 0.1, 1e22]) | odd,
        "currency": st.sampled_from(["VND", "USD"]) | odd,
        "idempotencyKey": st.sampled_from(["idem_aaaa1111", "idem_bbbb2222"]) | odd,
    },
    optional={"more": odd},
).map(lambda value: json.dumps(value).encode())
event = st.fixed_dictionaries(
    {"id": st.sampled_from(["webhook-001"]) | odd}, optional={"more": odd}
).map(lambda value: json.dumps(value).encode())


headers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(b"idempotency-key", b"x-idempotency-key", b"x-request-id", b"authorization"),
                *(b"accept-encoding", b"content-length", b"expect", b"host", b"cookie"),
            ]
        ),
        keys,
    ),
    max_size=4,
)
kinds = st.sampled_from(KINDS).map(lambda kind: [(b"content-type", kind)])


class Sent(NamedTuple):
    """What follows the first line of a request."""

    headers: list[tuple[bytes, bytes]]
    chunks: list[bytes]


def sent(body: Any, name: bytes = b"") -> Any:
    """Requests with such a body, in pieces; with the header of a key if it has a name."""
    key = keys.map(lambda value: [(name, value)] if name else [])
    every = st.tuples(key, kinds | st.just([]), headers).map(
        lambda lists: [pair for one in lists for pair in one]
    )
    pieces = st.builds(lambda whole, at: [whole[:at], b"", whole[at:]], body, st.integers(0, 9))
    return st.builds(Sent, every, pieces)


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def shop(folder):
    gateway = Gateway(folder / "book.db", seconds=0)
    return payments.make_app(Once("memory://"), gateway, time_out=0.01, per_second=10**9)


@pytest.fixture(scope="module")
def inlet(folder):
    return webhooks.make_app(Once("memory://"), webhooks.Receiver(folder / "events.txt"))


@pytest.fixture(scope="module", params=["first", "handler"])
def orders(request):
    """An application under the profile `ietf`, for every method, in both ways of claiming."""

    async def handle(asked: Request) -> Response:
        if request.param == "handler" and await claim(asked, scope="ann") is not None:
            await current_async().note(size=len(await asked.body()))
        body = await asked.body()
        return JSONResponse({"size": len(body)}, status_code=200 + len(body) % 2)

    middleware = Middleware(
        IdempotencyMiddleware,
        once=Once("memory://"),
        profile=IETF,
        scope=by_authorization if request.param == "first" else None,
        claim=request.param,
        methods=METHODS,
        max_body=40_000,
        status_path="/requests" if request.param == "first" else None,
    )
    route = Route("/{path:path}", handle, methods=list(METHODS))
    return Starlette(routes=[route], middleware=[middleware])


@pytest.mark.row("P1")
@given(sent(payment | bodies))
def test_the_payment_service_has_an_answer_to_every_body(shop, loop, sent):
    assert loop.run(ask(shop, "POST", "/payments", *sent)) in KNOWN


@pytest.mark.row("P1")
@given(
    method=st.sampled_from(METHODS) | st.text("ABC", min_size=1, max_size=5),
    path=st.sampled_from(["/payments", "/payments/", "/", "//payments", "/payments?a=1"])
    | st.text(max_size=8).map(lambda text: f"/{text}"),
    body=payment | bodies,
)
def test_the_payment_service_has_an_answer_everywhere(shop, loop, method, path, body):
    assert loop.run(ask(shop, method, path, [], [body])) in (*KNOWN, 307)


@pytest.mark.row("W7")
@given(sent(event | bodies, b"x-idempotency-key"))
def test_the_receiver_of_webhooks_has_an_answer_to_everything(inlet, loop, sent):
    assert loop.run(ask(inlet, "POST", "/webhook", *sent)) in KNOWN


@given(
    method=st.sampled_from(METHODS),
    path=st.text(max_size=8).map(lambda text: f"/{text}")
    | st.binary(max_size=40).map(lambda data: f"/requests/{data.hex()}")
    | st.text("AZaz09_-=%", max_size=40).map(lambda text: f"/requests/{text}"),
    sent=sent(bodies, b"idempotency-key"),
)
def test_the_profile_of_the_draft_has_an_answer_to_everything(orders, loop, method, path, sent):
    assert loop.run(ask(orders, method, path, *sent)) in KNOWN
