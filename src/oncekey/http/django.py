"""Middleware for Django, for blocking and async views, and a decorator for views that claim.

    MIDDLEWARE = [..., "oncekey.http.django.IdempotencyMiddleware"]
    ONCEKEY = {"store": "redis://localhost:6379/0", "scope": "oncekey.http.by_user"}

A request that is not covered is passed on unchanged. A covered request is read completely, and its
response is held back until the end of the request is recorded, so that no client is told "done"
before.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import lru_cache, partial, wraps
from itertools import chain
from time import monotonic
from typing import Any, Final, TypeVar

from oncekey.compat import invoke
from oncekey.engine.run_base import BaseRun
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.extras import needing
from oncekey.functions import UNSET
from oncekey.http.body import Body, LateBody
from oncekey.http.exchange import Exchange
from oncekey.http.exchange_async import AsyncExchange
from oncekey.http.openapi import describe
from oncekey.http.profiles import PROFILES
from oncekey.http.request import EVERYBODY, Headers, Request, called, nobody
from oncekey.http.response import Reply, Unkept, says_when
from oncekey.http.routers import Path, of_django
from oncekey.http.rules import Asked, Rules
from oncekey.once import Once
from oncekey.policy import switched_off

with needing("django", __name__):
    from asgiref.sync import (
        async_to_sync,
        iscoroutinefunction,
        markcoroutinefunction,
        sync_to_async,
    )
    from django.conf import settings  # type: ignore[import-untyped]  # Django brings no types
    from django.core import checks  # type: ignore[import-untyped]  # Django brings no types
    from django.core.exceptions import (  # type: ignore[import-untyped]  # Django brings no types
        SynchronousOnlyOperation,
    )
    from django.core.signals import (  # type: ignore[import-untyped]  # Django brings no types
        got_request_exception,
    )
    from django.http import (  # type: ignore[import-untyped]  # Django brings no types
        HttpResponse,
        UnreadablePostError,
    )
    from django.urls import (  # type: ignore[import-untyped]  # Django brings no types
        get_resolver,
    )
    from django.utils.module_loading import (  # type: ignore[import-untyped]  # Django brings no types
        import_string,
    )

_log = logging.getLogger("oncekey")

__all__ = ["IdempotencyMiddleware", "claimed", "drf_spectacular"]

T = TypeVar("T")
View = Callable[..., Any]
Principal = Callable[[Any], Any]
DjangoRequest = Any
DjangoResponse = Any
"""Any: Django brings no types, and middlewares add attributes to its requests."""

PLACE: Final = "_oncekey"
"""The attribute of a request that holds its exchange."""

_GONE: Final = 400
_BROKEN: Final = 500
_CHUNK: Final = 1 << 16
_ACCEPTS: Final = "HTTP_ACCEPT_ENCODING"
_BARE: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})  # headers without the prefix HTTP_

_HELD_FOR: Final = 1.0
_ENDLESS: Final = Unkept("the response is a stream")
_LARGE: Final = Unkept("the response is larger than max_result")
_SLOW: Final = Unkept("the response takes longer than a second to write")
_END: Final = object()

# Settings that may be dotted names, since the code cannot be imported yet when they are read.
_NAMES: Final = ("once", "profile", "scope", "when", "reconcile", "policy")
_opened: Final[dict[str, Any]] = {}
_seen: Final[list[bool]] = []


class IdempotencyMiddleware:
    """Django middleware that runs a request once, even if it arrives twice. See `ONCEKEY` above.

    With `"claim": "handler"` nothing is read or claimed before a view with the decorator `claimed`
    is called. The middleware then only holds the response back.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[DjangoRequest], Any]) -> None:
        """Check the setting `ONCEKEY`. Nothing is opened before the first request."""
        self.get_response: Final = get_response
        self.rules: Final = _rules_of(getattr(settings, "ONCEKEY", {}))
        self.rules.routes.answered_by(_paths)
        self._awaits = iscoroutinefunction(get_response)
        self._running: set[asyncio.Task[DjangoResponse]] = set()
        if self._awaits:
            markcoroutinefunction(self)
        _seen[:] = [True]  # tells `claimed` that the middleware is installed

    def __call__(self, request: DjangoRequest) -> Any:
        """Run the view and return its response, or return the one that is kept."""
        if self._awaits:
            return self._call_async(request)
        begun = _begin(self.rules, request)
        if begun is None:
            return self.get_response(request)
        return begun.respond(self.get_response) if isinstance(begun, DjangoExchange) else begun

    async def _call_async(self, request: DjangoRequest) -> DjangoResponse:
        begun = await _begin_async(self.rules, request)
        if begun is None:
            return await self.get_response(request)
        if isinstance(begun, AsyncDjangoExchange):
            return await self._to_the_end(begun.respond(self.get_response))
        return begun

    async def _to_the_end(self, running: Coroutine[Any, Any, DjangoResponse]) -> DjangoResponse:
        """Run the view to its end, also when its client is gone.

        Django then cancels this coroutine and waits for it. As soon as it returns, Django closes
        the request and the thread on which blocking views run, so it returns when the view is done.
        """
        task = asyncio.ensure_future(running)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_of_failure)
            await asyncio.wait([task])  # a second cancellation is obeyed
            if not task.cancelled() and task.exception() is None:
                await sync_to_async(task.result().close)()
            raise

    def process_exception(self, request: DjangoRequest, exception: Exception) -> None:
        """Note the exception of a view: another middleware may turn it into a response."""
        _note(request, exception)


def _note(request: object, error: BaseException | None) -> None:
    exchange: DjangoExchange | AsyncDjangoExchange | None = getattr(request, PLACE, None)
    if exchange is not None:
        exchange.error = error


def _note_unhandled(request: object = None, **_: object) -> None:
    """Note an exception that an inner middleware raised, which `process_exception` does not see."""
    _note(request, sys.exc_info()[1])


got_request_exception.connect(_note_unhandled, dispatch_uid="oncekey")


def _tell_of_failure(task: asyncio.Task[DjangoResponse]) -> None:
    """Log the failure: no other code sees it once the client is gone."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("a request failed after its client had gone", exc_info=task.exception())


# Views that claim by themselves, when they know the owner of the request.


def claimed(*, scope: Principal | None = UNSET) -> Callable[[View], View]:
    """Return a decorator for a view that runs once. Duplicates get its first answer.

    `scope` is a function that returns the owner of the request, such as
    `lambda request: request.user.pk`. If it returns None, the request runs unprotected.
    `scope=None` lets all clients see each other's answers. Without `scope` the one of the setting
    `ONCEKEY` is used.
    """
    if scope is not UNSET and scope is not None and not callable(scope):
        msg = f"scope must be a function of the request, or None, but it is {scope!r}"
        raise ConfigurationError(msg)

    def decorate(view: View) -> View:
        return _coroutine(view, scope) if iscoroutinefunction(view) else _blocking(view, scope)

    return decorate


def _blocking(view: View, scope: Any) -> View:
    @wraps(view)
    def claiming(*args: Any, **kwargs: Any) -> Any:
        request = _request(args, kwargs)
        exchange = _exchange(request)
        if exchange is None or exchange.run is not None:
            return view(*args, **kwargs)
        principal: Any = invoke(scope, request) if callable(scope) else _fixed(scope)
        if isinstance(exchange, DjangoExchange):
            reply = exchange.claim_for(principal)
        else:
            reply = async_to_sync(exchange.claim_for)(principal)
        if reply is not None:
            return _response_of(reply)
        with _current(exchange.run):
            return view(*args, **kwargs)

    return claiming


def _coroutine(view: View, scope: Any) -> View:
    @wraps(view)
    async def claiming(*args: Any, **kwargs: Any) -> Any:
        request = _request(args, kwargs)
        exchange = _exchange(request)
        if exchange is None or exchange.run is not None:
            return await view(*args, **kwargs)
        principal = _fixed(scope)
        if callable(scope):
            found: Any = await _ask_async(scope, request)
            principal = await found if hasattr(type(found), "__await__") else found
        if isinstance(exchange, AsyncDjangoExchange):
            reply = await exchange.claim_for(principal)
        else:
            reply = await sync_to_async(exchange.claim_for)(principal)
        if reply is not None:
            return _response_of(reply)
        with _current(exchange.run):
            return await view(*args, **kwargs)

    return claiming


def _request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the request: the first argument of a view, or the second of a method.

    Raise ConfigurationError if there is none.
    """
    for one in (*args[:2], kwargs.get("request")):
        if hasattr(one, "META"):
            return one
    raise ConfigurationError("claimed is for views, whose first argument is the request")


def _exchange(request: Any) -> DjangoExchange | AsyncDjangoExchange | None:
    """Return the exchange of the request, or None if it is not covered or has no key.

    Raise ConfigurationError if the middleware is missing.
    """
    if not _seen and not switched_off():
        msg = "a claimed view needs oncekey.http.django.IdempotencyMiddleware in MIDDLEWARE"
        raise ConfigurationError(msg)
    return getattr(request, PLACE, None)


def _fixed(scope: Any) -> Any:
    return EVERYBODY if scope is None else scope


# One covered request, for blocking views and for coroutine views.


class DjangoExchange(Exchange):
    """One covered request of a blocking view."""

    def __init__(self, rules: Rules, asked: Asked, request: DjangoRequest) -> None:
        """Start without reading or claiming."""
        super().__init__(rules, asked.echo)
        self._asked = asked
        self._request = request
        self._body = asked.body
        self._late: LateBody | None = None
        self._is_read = False
        self.error: BaseException | None = None
        """The exception of the view, which Django has turned into a response."""

    def start(self) -> Reply | None:
        """Read the request, and claim it. Return the reply if it must not run, else None."""
        rules = self.rules
        try:
            if rules.by_handler and rules.profile.signature is None:
                self._late = _later(self._request, self._body)
                return None
            if not _read(self._request, self._body, None):
                return Reply(_GONE, [])  # the client is gone, and nothing has begun
            rules.verify(self._asked, self._body, _url_of(rules, self._request))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        self._is_read = True
        return None if rules.by_handler else self.claim_for(UNSET)

    def claim_for(self, principal: str | None) -> Reply | None:
        """Claim for this owner. Return the reply if the request must not run, else None."""
        try:
            if not self._is_read:
                self._is_read = True
                if not _read(self._request, self._body, self._late):
                    return Reply(_GONE, [])
            call = self.rules.call(self._asked, self._body, principal)
            return self.claim(self._asked, self._body, call)
        except OncekeyError as error:
            return self.rules.answers.refusal(error)

    def respond(self, get_response: Callable[[DjangoRequest], Any]) -> DjangoResponse:
        """Run the view. Return the response, after the end of the request is recorded."""
        try:
            with _current(self.run), _inside(self._request, self):
                response = get_response(self._request)
            response = self._answered(response)
        except BaseException as error:
            self.close()
            self.failed(error)
            raise
        finally:
            if self.run is not None:
                self.run.abandon()
        if response.streaming:  # it may still read the request
            response._resource_closers.append(self.close)
        else:
            self.close()
        return response

    def close(self) -> None:
        """Close the body of the request."""
        if self._late is not None:
            self._late.close()
        self._body.close()

    def _answered(self, response: DjangoResponse) -> DjangoResponse:
        """Record the response. Return the one to send: this one, or another in its place."""
        if self.run is None:
            return _unprotected(self.rules, self._asked, self._body, response)
        if self.run.ended:  # the view may have ended the run itself
            return response
        status = response.status_code
        if self.error is not None and status >= _BROKEN:
            reply = self.failed(self.error)
            return response if reply is None else _instead_of(response, reply)
        later = says_when(status, _answered_headers(response))
        reply = self.end(status, self._kept(response), later=later)
        if reply is not None:
            return _instead_of(response, reply)
        _add_headers(response, self.echo)
        return response

    def _kept(self, response: DjangoResponse) -> bytes | Unkept:
        """Return the bytes to keep of the response, or why it is not kept."""
        status, rules = response.status_code, self.rules
        if not response.streaming:
            body: bytes | Unkept = response.content
        elif self.keeps(status):
            with _current(self.run):
                body = _hold(rules, response)
        else:
            body = _ENDLESS
        if isinstance(body, Unkept):
            return body
        return rules.kept(status, _answered_headers(response), body)


class AsyncDjangoExchange(AsyncExchange):
    """One covered request of a coroutine view. User code that needs the database gets a thread."""

    def __init__(self, rules: Rules, asked: Asked, request: DjangoRequest) -> None:
        """Start without reading or claiming."""
        super().__init__(rules, asked.echo)
        self._asked = asked
        self._request = request
        self._body = asked.body
        self._late: LateBody | None = None
        self._is_read = False
        self.error: BaseException | None = None
        """The exception of the view, which Django has turned into a response."""

    async def start(self) -> Reply | None:
        """Read the request, and claim it. Return the reply if it must not run, else None."""
        rules = self.rules
        try:
            if rules.by_handler and rules.profile.signature is None:
                self._late = _later(self._request, self._body)
                return None
            if not _read(self._request, self._body, None):
                return Reply(_GONE, [])  # the client is gone, and nothing has begun
            rules.verify(self._asked, self._body, _url_of(rules, self._request))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        self._is_read = True
        return None if rules.by_handler else await self.claim_for(UNSET)

    async def claim_for(self, principal: str | None) -> Reply | None:
        """Claim for this owner. Return the reply if the request must not run, else None."""
        try:
            if not self._is_read:
                self._is_read = True
                if not _read(self._request, self._body, self._late):
                    return Reply(_GONE, [])
            call = await _ask_async(self.rules.call, self._asked, self._body, principal)
            return await self.claim(self._asked, self._body, call)
        except OncekeyError as error:
            return self.rules.answers.refusal(error)

    async def respond(self, get_response: Callable[[DjangoRequest], Any]) -> DjangoResponse:
        """Run the view. Return the response, after the end of the request is recorded."""
        try:
            with _current(self.run), _inside(self._request, self):
                response = await get_response(self._request)
            response = await self._answered(response)
        except BaseException as error:
            self.close()
            await self.failed(error)
            raise
        finally:
            if self.run is not None:
                self.run.abandon()
        if response.streaming:  # it may still read the request
            response._resource_closers.append(self.close)
        else:
            self.close()
        return response

    def close(self) -> None:
        """Close the body of the request."""
        if self._late is not None:
            self._late.close()
        self._body.close()

    async def _answered(self, response: DjangoResponse) -> DjangoResponse:
        """Record the response. Return the one to send: this one, or another in its place."""
        if self.run is None:
            return _unprotected(self.rules, self._asked, self._body, response)
        if self.run.ended:  # the view may have ended the run itself
            return response
        status = response.status_code
        if self.error is not None and status >= _BROKEN:
            reply = await self.failed(self.error)
            return response if reply is None else _instead_of(response, reply)
        later = says_when(status, _answered_headers(response))
        reply = await self.end(status, await self._kept(response), later=later)
        if reply is not None:
            return _instead_of(response, reply)
        _add_headers(response, self.echo)
        return response

    async def _kept(self, response: DjangoResponse) -> bytes | Unkept:
        """Return the bytes to keep of the response, or why it is not kept."""
        status, rules = response.status_code, self.rules
        if not response.streaming:
            body: bytes | Unkept = response.content
        elif self.keeps(status):
            with _current(self.run):
                body = await _hold_async(rules, response)
        else:
            body = _ENDLESS
        if isinstance(body, Unkept):
            return body
        return rules.kept(status, _answered_headers(response), body)


def _unprotected(rules: Rules, asked: Asked, body: Body, response: Any) -> DjangoResponse:
    """Return the response to a request without a claim, with a notice for the client."""
    reply = rules.unclaimed(asked, body, response.status_code)
    if reply is not None:
        return _instead_of(response, reply)
    _add_headers(response, asked.notice)
    return response


@contextmanager
def _current(run: BaseRun | None) -> Iterator[None]:
    """Make the run the current one inside, if there is one."""
    if run is None:
        yield
        return
    run.become_current()
    try:
        yield
    finally:
        run.stop_being_current()


def _begin(rules: Rules, request: DjangoRequest) -> DjangoExchange | DjangoResponse | None:
    """Return the exchange if the request is to run, its response if not, None if not covered."""
    try:
        if rules.status is not None and rules.status.meant(request.method, *_placed(request)):
            pointing, record = rules.looked_for(_request_of(request)), None
            if pointing is not None:
                record = rules.once.get(pointing.key, scope=pointing.scope)
            return _response_of(rules.told(pointing, record))
        asked = _find(rules, request)
    except OncekeyError as error:
        return _response_of(rules.answers.refusal(error))
    if asked is None:
        return None
    exchange = DjangoExchange(rules, asked, request)
    try:
        reply = exchange.start()
    except BaseException:
        exchange.close()
        raise
    if reply is None:
        return exchange
    exchange.close()
    return _response_of(reply)


async def _begin_async(
    rules: Rules, request: DjangoRequest
) -> AsyncDjangoExchange | DjangoResponse | None:
    """Return the exchange if the request is to run, its response if not, None if not covered."""
    try:
        if rules.status is not None and rules.status.meant(request.method, *_placed(request)):
            pointing, record = await _ask_async(rules.looked_for, _request_of(request)), None
            if pointing is not None:
                record = await rules.once.get_async(pointing.key, scope=pointing.scope)
            return _response_of(rules.told(pointing, record))
        asked = await _ask_async(_find, rules, request)
    except OncekeyError as error:
        return _response_of(rules.answers.refusal(error))
    if asked is None:
        return None
    exchange = AsyncDjangoExchange(rules, asked, request)
    try:
        reply = await exchange.start()
    except BaseException:
        exchange.close()
        raise
    if reply is None:
        return exchange
    exchange.close()
    return _response_of(reply)


async def _ask_async(function: Callable[..., T], /, *args: Any) -> T:
    """Return the result of the function. Call it on Django's thread if it needs the database."""
    try:
        return function(*args)
    except SynchronousOnlyOperation:
        return await sync_to_async(function)(*args)


# Requests and responses of Django, converted for the rules and back.


def _find(rules: Rules, request: DjangoRequest) -> Asked | None:
    """Return the request if it is covered, else None."""
    places = _places(rules.profile.keys)
    if places and not rules.required and not any(name in request.META for name in places):
        return None  # the fast path: most requests have no key
    headers = _headers_of(request)
    sent = rules.read(headers)
    if sent is None:
        return None
    path, root = _placed(request)
    if hasattr(request, "urlconf"):  # by the host, for example: other requests have other routes
        rules.routes.answered_by(None)
    return rules.find(request.method, path, root, sent, lambda: _request_of(request, headers))


def _paths() -> list[Path] | None:
    """Return the paths of the project, or None if it has no URLs for all requests."""
    resolver: Any = get_resolver() if settings.ROOT_URLCONF else None
    return None if resolver is None else of_django(resolver.url_patterns)


def _placed(request: DjangoRequest) -> tuple[str, str]:
    """Return the path as the client sees it, and the prefix that the views do not see."""
    root = request.META.get("SCRIPT_NAME", "").rstrip("/")
    return (root + request.path_info, root) if root else (request.path, "")


@lru_cache(64)
def _places(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in META of headers that may hold a key, or () if the body may hold it."""
    if any(key.startswith("/") for key in keys):
        return ()
    return tuple(f"HTTP_{key.upper().replace('-', '_')}" for key in keys)


def _request_of(request: DjangoRequest, headers: Headers | None = None) -> Request:
    """Return the request for the rules."""
    path, root = _placed(request)
    return Request(
        request.method,
        path,
        _bytes(request.META.get("QUERY_STRING", "")),
        _headers_of(request) if headers is None else headers,
        request,
        lambda: _user(request),
        root,
    )


def _headers_of(request: DjangoRequest) -> Headers:
    """Return the headers of the request. Servers join the values of repeated ones with commas."""
    return [
        (_name(name), _bytes(value))
        for name, value in request.META.items()
        if name.startswith("HTTP_") or (name in _BARE and value)
    ]


@lru_cache(1024)
def _name(name: str) -> bytes:
    return name.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1", "replace")


def _bytes(text: object) -> bytes:
    """Return the bytes as they were received.

    Text beyond latin-1 cannot have been received. It is encoded as UTF-8 instead of refused.
    """
    try:
        return str(text).encode("latin-1")
    except UnicodeEncodeError:
        return str(text).encode("utf-8", "surrogatepass")


def _user(request: DjangoRequest) -> str | None:
    if not hasattr(request, "user"):
        return nobody()
    user = request.user
    return str(user.pk) if user.is_authenticated else None


def _url_of(rules: Rules, request: DjangoRequest) -> str:
    """Return the URL that was called, or an empty text if there is no signature to check."""
    if rules.profile.signature is None:
        return ""
    seen = request.get_full_path()
    target = called(seen, _placed(request)[1])
    url: str = request.build_absolute_uri(None if target == seen else target)
    return url


# The body


def _later(request: DjangoRequest, body: Body) -> LateBody | None:
    """Keep the body as the view reads it. Return None if an outer middleware has read it."""
    if hasattr(request, "_body") or request._read_started:
        return None
    late = LateBody(request._stream.read, body, request._stream.close)
    request._stream = io.BufferedReader(late)
    return late


def _read(request: DjangoRequest, body: Body, late: LateBody | None) -> bool:
    """Read the body, and let the view read it again. Return whether all of it came.

    Raise ConfigurationError if another middleware has read a part of it.
    """
    if late is not None:
        try:
            late.read_rest()
        except OSError:
            return False
        return _is_whole(request, body)
    if hasattr(request, "_body"):  # an outer middleware has read all of it
        body.feed(request._body)
        return True
    if request._read_started:
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
    if not _is_whole(request, body):
        return False
    request._stream.close()
    request._stream = _again(body)
    request._read_started = False
    return True


def _is_whole(request: DjangoRequest, body: Body) -> bool:
    length = str(request.META.get("CONTENT_LENGTH") or "")
    return not length.isdecimal() or body.size >= int(length)


def _again(body: Body) -> Any:
    """Return a file of the body that can be closed without closing the body."""
    file = body.stream()
    return file if isinstance(file, io.BytesIO) else io.BufferedReader(_BodyReader(file))


class _BodyReader(io.RawIOBase):
    """A reader with its own position in a file that others read too."""

    def __init__(self, file: Any) -> None:
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

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._at)
        count: int = self._file.readinto(buffer)
        self._at += count
        return count


# The request, for the view


@contextmanager
def _inside(request: DjangoRequest, exchange: object) -> Iterator[None]:
    """Let the request ask for an uncompressed response, and hold its exchange, inside the block.

    Afterwards it is as before, so that outer middlewares may compress the response.
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
    request.__dict__.pop("headers", None)  # a cached property, made of META again at its next use


# The response


def _answered_headers(response: DjangoResponse) -> Headers:
    """Return the headers of a response, without cookies."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]


def _response_of(reply: Reply) -> DjangoResponse:
    """Return the reply as a Django response. Repeated headers are joined with commas."""
    response = HttpResponse(reply.body, status=reply.status)
    del response.headers["Content-Type"]
    for header, value in reply.headers:
        name, text = header.decode("latin-1"), value.decode("latin-1")
        before = response.headers.get(name)
        response.headers[name] = text if before is None else f"{before}, {text}"
    return response


def _instead_of(response: DjangoResponse, reply: Reply) -> DjangoResponse:
    """Return the reply as a response that also closes the resources of the one it replaces."""
    instead = _response_of(reply)
    instead._resource_closers += response._resource_closers
    return instead


def _add_headers(response: DjangoResponse, headers: Iterable[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        response.headers[name.decode("latin-1")] = value.decode("latin-1")


# Streaming responses: those that end soon are kept, the others are sent without waiting.


def _hold(rules: Rules, response: DjangoResponse) -> bytes | Unkept:
    """Return the whole body of the response, or why it is not kept.

    The response still streams all of it, including the parts that were read here.
    """
    if rules.endless(_answered_headers(response)):
        return _ENDLESS
    left, parts = iter(response), _Parts(rules)
    for part in left:
        unkept = parts.add(part) or (_SLOW if parts.patience() == 0 else None)
        if unkept is not None:
            response.streaming_content = chain(parts.held, left)
            return unkept
    response.streaming_content = parts.held
    return b"".join(parts.held)


async def _hold_async(rules: Rules, response: DjangoResponse) -> bytes | Unkept:
    """Return the whole body of the response, or why it is not kept.

    The response still streams all of it, including the parts that were read here.
    """
    if rules.endless(_answered_headers(response)):
        return _ENDLESS
    pump, parts = _Pump(response), _Parts(rules)
    response._resource_closers.append(pump.stop)
    unkept: Unkept | None = None
    while unkept is None:
        timer = asyncio.timeout(parts.patience())
        try:
            async with timer:
                part = await pump.part()
        except TimeoutError:
            if not timer.expired():  # raised by the stream, not by the timer
                raise
            unkept = _SLOW
        else:
            if part is _END:
                break
            unkept = parts.add(part)
    response.streaming_content = pump.all(parts.held)
    return b"".join(parts.held) if unkept is None else unkept


class _Parts:
    """The parts of a stream that are held back so far."""

    def __init__(self, rules: Rules) -> None:
        self.held: list[bytes] = []
        self._room = rules.terms.max_result
        self._until: float | None = None

    def add(self, part: bytes) -> Unkept | None:
        """Add a part. Return why no more parts are to be held, or None."""
        if self._until is None:
            self._until = monotonic() + _HELD_FOR
        self.held.append(part)
        self._room -= len(part)
        return _LARGE if self._room < 0 else None

    def patience(self) -> float | None:
        """Return the seconds that the next part may take, or None without limit for the first."""
        return None if self._until is None else max(0.0, self._until - monotonic())


class _Pump:
    """A task that reads a stream, so that waiting for a part can time out without ending it.

    One task reads the stream from beginning to end, as the code in it may expect.
    """

    def __init__(self, response: DjangoResponse) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._task = asyncio.ensure_future(self._run(response))
        self.stop = partial(asyncio.get_running_loop().call_soon_threadsafe, self._task.cancel)

    async def _run(self, response: DjangoResponse) -> None:
        try:
            async with aclosing(aiter(response)) as parts:
                async for part in parts:
                    await self._queue.put(part)
        except Exception as error:  # noqa: BLE001 - whoever reads the stream gets it
            await self._queue.put(error)
        else:
            await self._queue.put(_END)

    async def part(self) -> Any:
        part = await self._queue.get()
        if isinstance(part, Exception):
            raise part
        if part is _END:
            self._queue.put_nowait(_END)
        return part

    async def all(self, held: list[bytes]) -> AsyncIterator[bytes]:
        """Yield the parts that were held back, and then the remaining ones."""
        try:
            for part in held:
                yield part
            while (part := await self.part()) is not _END:
                yield part
        finally:
            self._task.cancel()


# The setting `ONCEKEY`, and the check of it that `manage.py` runs.


def _rules_of(setting: object) -> Rules:
    """Return the rules for the setting. Raise ConfigurationError if it is not valid."""
    if not isinstance(setting, Mapping):
        msg = f"ONCEKEY must be a dict such as {{'store': 'redis://...'}}, but it is {setting!r}"
        raise ConfigurationError(msg)
    try:
        given = {name: _meant(name, value) for name, value in setting.items()}
        return Rules(_once(given), **given)
    except ConfigurationError as error:
        msg = f"ONCEKEY is wrong: {error}"
        raise ConfigurationError(msg) from None


def project_once() -> Once:
    """Return the `Once` of the setting `ONCEKEY`, which the middleware uses too."""
    setting = getattr(settings, "ONCEKEY", {})
    named = {name: setting[name] for name in ("once", "store", "prefix") if name in setting}
    once = _once({name: _meant(name, value) for name, value in named.items()})
    if not isinstance(once, Once):
        raise ConfigurationError("ONCEKEY names no Once")
    return once


def _meant(name: object, value: object) -> Any:
    """Return the value, or the object that it names."""
    if not isinstance(name, str):
        msg = f"there is no setting {name!r}; see oncekey.http.Settings"
        raise ConfigurationError(msg)
    if name in _NAMES:
        return _named(name, value)
    if name == "uncertain" and isinstance(value, (str, list, tuple)):
        return tuple(_named(name, one) for one in ([value] if isinstance(value, str) else value))
    return value


def _named(name: str, value: object) -> Any:
    if not isinstance(value, str) or value in PROFILES or value.startswith("/"):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        msg = f"{name} names {value!r}, which cannot be imported: {error}"
        raise ConfigurationError(msg) from None


def _once(given: dict[str, Any]) -> Once | None:
    """Return the given `Once`, or the one of the given store, which is opened once."""
    if "once" in given:
        if "store" in given or "prefix" in given:
            raise ConfigurationError("store and prefix belong to a Once: give those, or once")
        once: Once | None = given.pop("once")
        return once
    place = {"store": given.pop("store", None), "prefix": given.pop("prefix", None)}
    if _opened.get("place") != place:
        _opened.update(once=Once(**place), place=place)
    return _opened["once"]  # type: ignore[no-any-return]  # it was put there above


@checks.register  # type: ignore[untyped-decorator]  # Django brings no types
def _check(**_: object) -> list[checks.CheckMessage]:
    """Return an error if the setting is not valid."""
    try:
        rules = _rules_of(getattr(settings, "ONCEKEY", {}))
        rules.routes.answered_by(_paths)
        rules.routes.compare()
    except ConfigurationError as error:
        return [checks.Error(str(error), id="oncekey.E001")]
    return []


def drf_spectacular(result: dict[str, Any], **_: object) -> Any:
    """Describe the middleware in a document of drf-spectacular.

    Name it in the settings: `"POSTPROCESSING_HOOKS": ["oncekey.http.django.drf_spectacular"]`.
    """
    return describe(result, _rules_of(getattr(settings, "ONCEKEY", {})))
