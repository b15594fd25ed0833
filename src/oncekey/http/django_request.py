"""Requests and responses of Django in the terms of the rules, and back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from django.http import (  # type: ignore[import-untyped]  # Django brings no types
    HttpResponse,
    UnreadablePostError,
)

from oncekey.errors import ConfigurationError
from oncekey.http.body import Body
from oncekey.http.protocol import Asked, Rules
from oncekey.http.reply import Reply
from oncekey.http.request import Headers, Request, nobody

DjangoRequest = Any
DjangoResponse = Any
"""Django brings no types, and its requests grow attributes."""

PLACE: Final = "_oncekey"
"""Where a request has its exchange."""
_CHUNK: Final = 1 << 16
_ACCEPTS: Final = "HTTP_ACCEPT_ENCODING"
_BARE: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})  # headers whose names have no HTTP_


def find(rules: Rules, request: DjangoRequest) -> Asked | None:
    """The request, if it is covered."""
    places = _places(rules.profile.keys)
    if places and not rules.required and not any(name in request.META for name in places):
        return None  # most requests have no key, and cost no more than this
    headers = headers_of(request)
    return rules.find(request.method, request.path, headers, lambda: request_of(request, headers))


@lru_cache(64)
def _places(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Where Django has the headers that may hold a key; empty if the body may hold it too."""
    if any(key.startswith("/") for key in keys):
        return ()
    return tuple(f"HTTP_{key.upper().replace('-', '_')}" for key in keys)


def request_of(request: DjangoRequest, headers: Headers | None = None) -> Request:
    """The request as the rules see it."""
    return Request(
        request.method,
        request.path,
        _bytes(request.META.get("QUERY_STRING", "")),
        headers_of(request) if headers is None else headers,
        request,
        lambda: _user(request),
    )


def headers_of(request: DjangoRequest) -> Headers:
    """Its headers. Servers have joined the values of a repeated one with commas."""
    return [
        (_name(name), _bytes(value))
        for name, value in request.META.items()
        if name.startswith("HTTP_") or (name in _BARE and value)
    ]


@lru_cache(1024)
def _name(name: str) -> bytes:
    return name.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1", "replace")


def _bytes(text: object) -> bytes:
    """What came over the wire; what cannot have come that way stays unlike anything that can."""
    try:
        return str(text).encode("latin-1")
    except UnicodeEncodeError:
        return str(text).encode("utf-8", "surrogatepass")


def _user(request: DjangoRequest) -> str | None:
    if not hasattr(request, "user"):
        return nobody()
    user = request.user
    return str(user.pk) if user.is_authenticated else None


def url_of(rules: Rules, request: DjangoRequest) -> str:
    """The URL that was called, where a signature may cover it."""
    return "" if rules.profile.signature is None else request.build_absolute_uri()


# The body


def read(request: DjangoRequest, body: Body) -> bool:
    """Whether the whole body came. The view reads it as if nobody had."""
    if hasattr(request, "_body"):  # a middleware outside has read it whole
        body.feed(request._body)  # noqa: SLF001 - `body` would refuse what uploads may be
        return True
    if request._read_started:  # noqa: SLF001 - there is no other way to know
        msg = (
            "another middleware has read the body of the request: put IdempotencyMiddleware "
            "before it in MIDDLEWARE"
        )
        raise ConfigurationError(msg)
    try:
        while chunk := request.read(_CHUNK):
            body.feed(chunk)
    except UnreadablePostError:
        return False
    length = str(request.META.get("CONTENT_LENGTH") or "")
    if length.isdecimal() and body.size < int(length):
        return False
    request._stream.close()  # noqa: SLF001 - as Django itself does in `body`
    request._stream = _again(body)  # noqa: SLF001 - see above
    request._read_started = False  # noqa: SLF001 - see above
    return True


def _again(body: Body) -> Any:  # noqa: ANN401 - a binary file
    """A file of the body that can be closed without closing the body."""
    file = body.stream()
    return file if isinstance(file, io.BytesIO) else io.BufferedReader(_Reader(file))


class _Reader(io.RawIOBase):
    """A place in a file that others read too."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401 - a spooled file
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR:
            offset, whence = self._at + offset, io.SEEK_SET
        self._file.seek(offset, whence)
        self._at = self._file.tell()
        return self._at

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - any writable buffer
        self._file.seek(self._at)
        count: int = self._file.readinto(buffer)
        self._at += count
        return count


# What the view sees


@contextmanager
def inside(request: DjangoRequest, exchange: object) -> Iterator[None]:
    """Meanwhile the request asks for a plain response, and has its exchange with it.

    Middlewares outside find it as it was, so that they may compress the response.
    """
    accepted = request.META.get(_ACCEPTS)
    _accept(request, "identity")
    setattr(request, PLACE, exchange)
    try:
        yield
    finally:
        delattr(request, PLACE)
        _accept(request, accepted)


def _accept(request: DjangoRequest, encoding: str | None) -> None:
    if encoding is None:
        request.META.pop(_ACCEPTS, None)
    else:
        request.META[_ACCEPTS] = encoding
    request.__dict__.pop("headers", None)  # made of META when it is asked for again


# The response


def answered_headers(response: DjangoResponse) -> Headers:
    """The headers of a response. Cookies are not among them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]


def response_of(reply: Reply) -> DjangoResponse:
    """A reply in Django's terms, where each header has one value."""
    response = HttpResponse(reply.body, status=reply.status)
    del response.headers["Content-Type"]
    for header, value in reply.headers:
        name, text = header.decode("latin-1"), value.decode("latin-1")
        before = response.headers.get(name)
        response.headers[name] = text if before is None else f"{before}, {text}"
    return response


def instead_of(response: DjangoResponse, reply: Reply) -> DjangoResponse:
    """The reply; what belongs to the response is closed when the reply is."""
    instead = response_of(reply)
    instead._resource_closers += response._resource_closers  # noqa: SLF001 - `close` would end the request
    return instead
