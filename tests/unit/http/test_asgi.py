"""What an application may write into its messages."""

import pytest

from oncekey import ConfigurationError, Once
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.http.asgi import _lowered as lowered

PLAIN = [(b"content-type", b"text/plain"), (b"vary", b"accept")]


@pytest.mark.parametrize(
    "headers",
    [
        PLAIN,
        iter(PLAIN),
        [(b"Content-Type", b"text/plain"), (b"VARY", b"accept")],
        [(bytearray(b"content-type"), b"text/plain"), (b"vary", memoryview(b"accept"))],
        [[b"content-type", b"text/plain"], [b"x-Other", b"1"]],
    ],
    ids=["plain", "iterator", "capitals", "other bytes", "lists"],
)
def test_names_come_in_lower_case_and_all_of_it_in_bytes(headers):
    seen = lowered(headers)
    assert [tuple(pair) for pair in seen] in (PLAIN, [PLAIN[0], (b"x-other", b"1")])
    assert {type(one) for pair in seen for one in pair} == {bytes}


def test_it_is_a_copy():
    """The application may change its own while the response is held back."""
    headers = list(PLAIN)
    seen = lowered(headers)
    headers.clear()
    assert seen == PLAIN


# Other loops


async def unreachable(*_):
    raise AssertionError


def test_without_a_loop_of_asyncio_a_request_is_refused_before_anything_is_claimed():
    """As under trio: hypercorn -k trio."""
    once = Once("memory://")
    app = IdempotencyMiddleware(unreachable, once, scope=None)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
    with pytest.raises(ConfigurationError, match="need an event loop of asyncio"):
        app(scope, unreachable, unreachable).send(None)
    assert list(once.scan()) == []


def test_without_a_loop_of_asyncio_an_application_does_not_start():
    async def started(scope, receive, send):
        await send({"type": "lifespan.startup.complete"})

    app = IdempotencyMiddleware(started, Once("memory://"), scope=None)
    with pytest.raises(ConfigurationError, match="need an event loop of asyncio"):
        app({"type": "lifespan"}, unreachable, unreachable).send(None)


# Claims in handlers


async def test_nothing_is_read_before_a_handler_claims():
    async def stranger(scope, receive, send):
        await send({"type": "http.response.start", "status": 401})
        await send({"type": "http.response.body"})

    sent = []

    async def send(message):
        sent.append(message["type"])

    app = IdempotencyMiddleware(stranger, Once("memory://"), claim="handler")
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
    await app(scope, unreachable, send)
    assert sent == ["http.response.start", "http.response.body"]
