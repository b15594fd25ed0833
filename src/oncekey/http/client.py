"""Transports for httpx that add idempotency keys to requests, and repeat them after failures.

    client = httpx.Client(transport=OnceTransport())

Each POST and PATCH gets an `Idempotency-Key` unless it has one, and is sent again with that key
after a lost connection, a time-out or a response that asks to retry. Use them only for servers
that honour the key: a server that ignores it does the work again each time.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ldexp
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

import msgspec

from oncekey.core.key import checked_key
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.policy import Duration, seconds, size

with needing("http", __name__):
    import anyio
    import httpx

KeyOf = Callable[[httpx.Request], str | None]
Outcome = httpx.Response | httpx.TransportError

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
# RFC 9110, section 9.2.2: these methods have the same effect if they are sent twice.
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_CONFLICT: Final = 409
_CONFLICTS: Final = frozenset(
    {"in-progress", "key-reused", "outcome-unknown", "response-not-replayable"}
)
_SITUATION: Final = re.compile(r"[:/#=]")
_AGAIN: Final = frozenset({425, 429, 502, 503, 504})
_PASSING: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)
_TIMEOUTS: Final = ("connect", "read", "write", "pool")
_SHORTEST: Final = 0.001  # a time-out of zero makes a socket non-blocking
_DOUBLINGS: Final = 40  # enough to reach the longest wait, without overflow


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of both transports. `rules` has the defaults."""

    header: str
    methods: Iterable[str]
    key: KeyOf
    tries: int
    deadline: Duration
    first_wait: Duration
    longest_wait: Duration
    buffer: str | int


def new_key(_request: httpx.Request) -> str:
    """Return a new random key."""
    return str(uuid.uuid4())


def rules(
    *,
    header: str = "Idempotency-Key",
    methods: Iterable[str] = ("POST", "PATCH"),
    key: KeyOf = new_key,
    tries: int = 6,
    deadline: Duration = 60,
    first_wait: Duration = 0.5,
    longest_wait: Duration = 8,
    buffer: str | int = "1MiB",
) -> RetryRules:
    """Return the rules for these settings. Raise ConfigurationError if one is not valid."""
    if not _is_token(header):
        raise ConfigurationError(f"header must be the name of a header, not {header!r}")
    if not callable(key):
        raise ConfigurationError(f"key must be a function that takes the request, not {key!r}")
    if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
        raise ConfigurationError(f"tries must be a whole number above zero, not {tries!r}")
    return RetryRules(
        header=header,
        methods=_methods(methods),
        key=key,
        tries=tries,
        deadline=seconds(deadline, "deadline"),
        first_wait=seconds(first_wait, "first_wait"),
        longest_wait=seconds(longest_wait, "longest_wait"),
        buffer=size(buffer, "buffer"),
    )


def _methods(methods: object) -> frozenset[str]:
    if isinstance(methods, Iterable) and not isinstance(methods, str | bytes):
        listed = list(methods)
        if all(_is_token(one) for one in listed):
            return frozenset(one.upper() for one in listed)
    raise ConfigurationError(f'methods must be a list such as ["POST", "PATCH"], not {methods!r}')


def _is_token(name: object) -> bool:
    return isinstance(name, str) and _TOKEN.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class RetryRules:
    """The settings of a transport in seconds and bytes, with its random source and clocks."""

    header: str
    methods: frozenset[str]
    key: KeyOf
    tries: int
    deadline: float
    first_wait: float
    longest_wait: float
    buffer: int
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], float] = time.time

    def start(self, request: httpx.Request) -> Tries | None:
        """Add the key to the request. Return its tries, or None if it must not be repeated."""
        if self.header not in request.headers and request.method in self.methods:
            key = self.key(request)
            if key:
                request.headers[self.header] = checked_key(key)
        if not request.headers.get(self.header) and request.method not in _IDEMPOTENT:
            return None
        return Tries(self) if _in_memory(request) or self.fits(request) else None

    def reads(self, response: httpx.Response) -> bool:
        """Return whether the body must be read completely before the try counts as answered."""
        return not _in_memory(response) and self.fits(response)

    def fits(self, message: httpx.Request | httpx.Response) -> bool:
        """Return whether the body has a known length that fits into `buffer`."""
        length = message.headers.get("content-length", "")
        return _LENGTH.fullmatch(length) is not None and int(length) <= self.buffer


def _in_memory(message: httpx.Request | httpx.Response) -> bool:
    return isinstance(message.stream, httpx.ByteStream)


class Tries:
    """The tries of one request: the number so far, and the time that is left."""

    def __init__(self, rules: RetryRules) -> None:
        """Start the deadline."""
        self._rules = rules
        self._end = rules.clock() + rules.deadline
        self._made = 0

    def next(self, request: httpx.Request) -> httpx.Request:
        """Return the request for the next try, with time-outs that end at the deadline."""
        self._made += 1
        left = max(self._left(), _SHORTEST)
        given = request.extensions.get("timeout", {})
        timeout = {
            name: left if given.get(name) is None else min(given[name], left) for name in _TIMEOUTS
        }
        return httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "timeout": timeout},
        )

    def wait_after(self, outcome: Outcome) -> float | None:
        """Return the seconds to wait before the next try, or None if there is to be none."""
        if self._made >= self._rules.tries or not passing(outcome):
            return None
        wait = self._back_off()
        if isinstance(outcome, httpx.Response):
            wait = max(wait, told_to_wait(outcome.headers, self._rules.today()) or 0.0)
        return wait if wait < self._left() else None

    def _back_off(self) -> float:
        """Return a random time below a bound that doubles: clients must not retry in step."""
        doubled = ldexp(self._rules.first_wait, min(self._made - 1, _DOUBLINGS))
        return min(doubled, self._rules.longest_wait) * self._rules.random()

    def _left(self) -> float:
        return self._end - self._rules.clock()


def passing(outcome: Outcome) -> bool:
    """Return whether the same request may succeed later."""
    if not isinstance(outcome, httpx.Response):
        return isinstance(outcome, _PASSING)
    said = outcome.headers.get("stripe-should-retry", "").lower()
    if said in {"true", "false"}:
        return said == "true" and outcome.is_error
    if outcome.status_code == _CONFLICT:
        return _in_progress(outcome)
    return outcome.status_code in _AGAIN


def told_to_wait(headers: httpx.Headers, today: float) -> float | None:
    """Return the seconds that `Retry-After` asks for, or None if it is missing or unreadable."""
    value = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    until = _moment(value)
    if until is None:
        return None
    since = _moment(headers.get("date", ""))  # the server's clock, if it sent its time
    return max(0.0, until - (today if since is None else since))


def whole(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return the response with its complete body."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=response.extensions,
    )


class _Problem(msgspec.Struct):
    type: str = ""


def _in_progress(conflict: httpx.Response) -> bool:
    """Return whether a 409 means "in progress": by its type, or since it has `Retry-After`."""
    # With `docs_url` the type of a problem is an address that ends with the situation.
    situation = _SITUATION.split(_problem(conflict))[-1]
    if situation in _CONFLICTS:
        return situation == "in-progress"
    return told_to_wait(conflict.headers, 0.0) is not None


def _problem(response: httpx.Response) -> str:
    """Return the type of an RFC 9457 problem, or an empty text if the body cannot be read."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("application/problem+json"):
        return ""
    if not isinstance(response.stream, httpx.ByteStream):  # not in memory
        return ""
    try:  # on a copy: once a response is decoded, its raw body cannot be read any more
        copy = httpx.Response(200, headers=response.headers, content=b"".join(response.stream))
        return msgspec.json.decode(copy.content, type=_Problem).type
    except (httpx.DecodingError, msgspec.MsgspecError, RecursionError):
        return ""


def _moment(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


__all__ = ["AsyncOnceTransport", "OnceTransport"]

pause: Final = time.sleep
pause_async: Final = anyio.sleep


class OnceTransport(httpx.BaseTransport):
    """A transport that adds keys to requests, and sends them again with the same key."""

    def __init__(
        self, transport: httpx.BaseTransport | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        """Send through `transport`, by default `httpx.HTTPTransport()`."""
        self._rules: RetryRules = rules(**settings)
        self._inner = httpx.HTTPTransport() if transport is None else transport
        if not isinstance(self._inner, httpx.BaseTransport):
            msg = f"transport must be such as httpx.HTTPTransport(), not {transport!r}"
            raise ConfigurationError(msg)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, repeatedly if needed. Return the response of the last try.

        Raise the error of the last try if that failed. The status of the response may be any.
        """
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
        """Send the request once. Return the response, with its body if that fits into `buffer`.

        A body that breaks off then counts as a failed try.
        """
        response = self._inner.handle_request(request)
        if not self._rules.reads(response):
            return response
        try:
            parts = [part for part in response.iter_raw()]  # noqa: C416 - the shape of its twin
        finally:
            response.close()
        return whole(response, b"".join(parts))

    def close(self) -> None:
        """Close the inner transport."""
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
    """A transport that adds keys to requests, and sends them again with the same key."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        """Send through `transport`, by default `httpx.AsyncHTTPTransport()`."""
        self._rules: RetryRules = rules(**settings)
        self._inner = httpx.AsyncHTTPTransport() if transport is None else transport
        if not isinstance(self._inner, httpx.AsyncBaseTransport):
            msg = f"transport must be such as httpx.AsyncHTTPTransport(), not {transport!r}"
            raise ConfigurationError(msg)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, repeatedly if needed. Return the response of the last try.

        Raise the error of the last try if that failed. The status of the response may be any.
        """
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
        """Send the request once. Return the response, with its body if that fits into `buffer`.

        A body that breaks off then counts as a failed try.
        """
        response = await self._inner.handle_async_request(request)
        if not self._rules.reads(response):
            return response
        try:
            parts = [part async for part in response.aiter_raw()]
        finally:
            await response.aclose()
        return whole(response, b"".join(parts))

    async def aclose(self) -> None:
        """Close the inner transport."""
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
