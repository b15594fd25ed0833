"""Transports for httpx that make a request with an effect safe to repeat, and repeat it.

    client = httpx.Client(transport=OnceTransport())

Each POST and PATCH gets an `Idempotency-Key` unless it has one, and is sent again with that key
after a lost connection, a time-out or an answer that asks for patience. Use them only for servers
that honour the key: one that ignores it does the work as often as it is asked.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self, Unpack

from oncekey.errors import ConfigurationError
from oncekey.extras import needing

with needing("http", __name__):
    import anyio
    import httpx

    from oncekey.http.retrying import ClientSettings, Rules, rules, whole

__all__ = ["AsyncOnceTransport", "OnceTransport"]

pause: Final = time.sleep
pause_async: Final = anyio.sleep


class OnceTransport(httpx.BaseTransport):
    """Adds a key to requests with an effect, and sends them again with the same key."""

    def __init__(
        self, transport: httpx.BaseTransport | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        """Send through `transport`, by default `httpx.HTTPTransport()`."""
        self._rules: Rules = rules(**settings)
        self._inner = httpx.HTTPTransport() if transport is None else transport
        if not isinstance(self._inner, httpx.BaseTransport):
            msg = f"transport must be such as httpx.HTTPTransport(), not {transport!r}"
            raise ConfigurationError(msg)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the last try, whatever its status, or the error of the last try."""
        tries = self._rules.start(request)
        if tries is None:
            return self._inner.handle_request(request)
        request.read()
        while True:
            try:
                response = self._receive(tries.next(request))
            except httpx.TransportError as error:
                wait = tries.wait_after(error)
                if wait is None:
                    raise
            else:
                wait = tries.wait_after(response)
                if wait is None:
                    return response
                response.close()
            pause(wait)

    def _receive(self, request: httpx.Request) -> httpx.Response:
        """The answer to one try, with its body if that is short: half an answer is none."""
        response = self._inner.handle_request(request)
        if not self._rules.reads(response):
            return response
        try:
            parts = [part for part in response.iter_raw()]  # noqa: C416 - the shape of its twin
        finally:
            response.close()
        return whole(response, b"".join(parts))

    def close(self) -> None:
        """The inner transport is closed."""
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(exc_type, exc_value, traceback)


class AsyncOnceTransport(httpx.AsyncBaseTransport):
    """Adds a key to requests with an effect, and sends them again with the same key."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        """Send through `transport`, by default `httpx.AsyncHTTPTransport()`."""
        self._rules: Rules = rules(**settings)
        self._inner = httpx.AsyncHTTPTransport() if transport is None else transport
        if not isinstance(self._inner, httpx.AsyncBaseTransport):
            msg = f"transport must be such as httpx.AsyncHTTPTransport(), not {transport!r}"
            raise ConfigurationError(msg)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the last try, whatever its status, or the error of the last try."""
        tries = self._rules.start(request)
        if tries is None:
            return await self._inner.handle_async_request(request)
        await request.aread()
        while True:
            try:
                response = await self._receive(tries.next(request))
            except httpx.TransportError as error:
                wait = tries.wait_after(error)
                if wait is None:
                    raise
            else:
                wait = tries.wait_after(response)
                if wait is None:
                    return response
                await response.aclose()
            await pause_async(wait)

    async def _receive(self, request: httpx.Request) -> httpx.Response:
        """The answer to one try, with its body if that is short: half an answer is none."""
        response = await self._inner.handle_async_request(request)
        if not self._rules.reads(response):
            return response
        try:
            parts = [part async for part in response.aiter_raw()]
        finally:
            await response.aclose()
        return whole(response, b"".join(parts))

    async def aclose(self) -> None:
        """The inner transport is closed."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(exc_type, exc_value, traceback)
