"""Middleware for Django, for views of both kinds, and a decorator for those that claim themselves.

    MIDDLEWARE = [..., "oncekey.http.django.IdempotencyMiddleware"]
    ONCEKEY = {"store": "redis://localhost:6379/0", "scope": "oncekey.http.by_user"}

A request that is not covered goes through untouched. A covered one is read whole, and its response
is held back until the record says how it ended: no client hears "done" before.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
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
from oncekey.http.body import Body
from oncekey.http.exchange import Exchange
from oncekey.http.exchange_async import AsyncExchange
from oncekey.http.profiles import PROFILES
from oncekey.http.request import EVERYBODY, NOBODY, Headers, Request, nobody
from oncekey.http.response import Reply, Unkept
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
    from django.utils.module_loading import (  # type: ignore[import-untyped]  # Django brings no types
        import_string,
    )

_log = logging.getLogger("oncekey")

__all__ = ["IdempotencyMiddleware", "claimed"]

T = TypeVar("T")
View = Callable[..., Any]
Principal = Callable[[Any], Any]
DjangoRequest = Any
DjangoResponse = Any
"""Django brings no types, and its requests grow attributes."""

PLACE: Final = "_oncekey"
"""Where a request has its exchange."""

_GONE: Final = 400
_BROKEN: Final = 500
_CHUNK: Final = 1 << 16
_ACCEPTS: Final = "HTTP_ACCEPT_ENCODING"
_BARE: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})  # headers whose names have no HTTP_

_HELD_FOR: Final = 1.0
_ENDLESS: Final = Unkept("the response is a stream")
_LARGE: Final = Unkept("the response is larger than max_result")
_SLOW: Final = Unkept("the response takes longer than a second to write")
_END: Final = object()

# What settings can only name, because the code is not there yet when they are read.
_NAMES: Final = ("once", "profile", "scope", "when", "reconcile", "policy")
_opened: Final[dict[str, Any]] = {}
_seen: Final[list[bool]] = []


class IdempotencyMiddleware:
    """Makes requests that arrive twice happen once, as the setting `ONCEKEY` says.

    With `"claim": "handler"` nothing is claimed before a view that is `claimed` says whose request
    it is; the middleware then only holds the response back.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[DjangoRequest], Any]) -> None:
        """Every setting is checked now, and nothing is opened."""
        self.get_response: Final = get_response
        self.rules: Final = _rules_of(getattr(settings, "ONCEKEY", {}))
        self._awaits = iscoroutinefunction(get_response)
        self._running: set[asyncio.Task[DjangoResponse]] = set()
        if self._awaits:
            markcoroutinefunction(self)
        _seen[:] = [True]  # views that claim may rely on it

    def __call__(self, request: DjangoRequest) -> Any:
        """The view has answered, now or before."""
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
        """The view runs to its end, also when its client is gone.

        Django cancels us then and waits. It takes the request apart as soon as we return, with the
        thread on which views that block are running, so we return when the view is done.
        """
        task = asyncio.ensure_future(running)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_of_failure)
            await asyncio.wait([task])  # who cancels us again means it
            if not task.cancelled() and task.exception() is None:
                await sync_to_async(task.result().close)()
            raise

    def process_exception(self, request: DjangoRequest, exception: Exception) -> None:
        """Another middleware may make a response of it, so that nobody else would hear of it."""
        _note(request, exception)


def _note(request: object, error: BaseException | None) -> None:
    exchange: DjangoExchange | AsyncDjangoExchange | None = getattr(request, PLACE, None)
    if exchange is not None:
        exchange.error = error


def _note_unhandled(request: object = None, **_: object) -> None:
    """Also what a middleware inside has raised is known, and not only what a view has."""
    _note(request, sys.exc_info()[1])


got_request_exception.connect(_note_unhandled, dispatch_uid="oncekey")


def _tell_of_failure(task: asyncio.Task[DjangoResponse]) -> None:
    """Nobody else would hear of it."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("a request failed after its client had gone", exc_info=task.exception())


# Views that claim by themselves, when they know whose request it is.


def claimed(*, scope: Principal | None = UNSET) -> Callable[[View], View]:
    """A decorator: the view runs once, and duplicates get its first answer.

    `scope` is a function of the request that says whose it is, such as
    `lambda request: request.user.pk`, and None where nobody can be told apart from others: such a
    request runs unprotected. `scope=None` says that all clients may see each other's answers.
    Without it the scope of the setting `ONCEKEY` is asked.
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
        principal = _principal(invoke(scope, request)) if callable(scope) else _fixed(scope)
        if principal is not NOBODY:
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
            principal = _principal(await found if hasattr(type(found), "__await__") else found)
        if principal is not NOBODY:
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
    """The first argument of a view, the second of a method."""
    for one in (*args[:2], kwargs.get("request")):
        if hasattr(one, "META"):
            return one
    raise ConfigurationError("claimed is for views, whose first argument is the request")


def _exchange(request: Any) -> DjangoExchange | AsyncDjangoExchange | None:
    """The exchange of the request; None where it is not covered, or has no key."""
    if not _seen and not switched_off():
        msg = "a claimed view needs oncekey.http.django.IdempotencyMiddleware in MIDDLEWARE"
        raise ConfigurationError(msg)
    return getattr(request, PLACE, None)


def _principal(found: Any) -> Any:
    return NOBODY if found is None else found


def _fixed(scope: Any) -> Any:
    return EVERYBODY if scope is None else scope


# One covered request, in both colours.


class DjangoExchange(Exchange):
    """One covered request of a view that blocks."""

    def __init__(self, rules: Rules, asked: Asked, request: DjangoRequest) -> None:
        """Read nothing and claim nothing yet."""
        super().__init__(rules, asked.echo)
        self._asked = asked
        self._request = request
        self._body = rules.body(asked)
        self.error: BaseException | None = None
        """What the view raised and Django made a response of."""

    def start(self) -> Reply | None:
        """Return the answer, if there is one already; None: the request runs."""
        rules = self.rules
        try:
            if not _read(self._request, self._body):
                return Reply(_GONE, [])  # nobody is there to read it, and nothing has begun
            rules.verify(self._asked, self._body, _url_of(rules, self._request))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        return None if rules.by_handler else self.claim_for(UNSET)

    def claim_for(self, principal: str | None) -> Reply | None:
        """Return the answer, if this is a duplicate or is refused; None: the request runs."""
        try:
            call = self.rules.call(self._asked, self._body, principal)
            return self.claim(self._asked, self._body, call)
        except OncekeyError as error:
            return self.rules.answers.refusal(error)

    def respond(self, get_response: Callable[[DjangoRequest], Any]) -> DjangoResponse:
        """Return the response, when it is recorded how the request ended."""
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
        if response.streaming:  # it may yet read the request
            response._resource_closers.append(self.close)  # noqa: SLF001 - Django has no other way
        else:
            self.close()
        return response

    def close(self) -> None:
        """Drop the body of the request."""
        self._body.close()

    def _answered(self, response: DjangoResponse) -> DjangoResponse:
        """Return the response to send: this one, or another that stands in its place."""
        if self.run is None or self.run.ended:  # the view may have ended it itself
            return response
        status = response.status_code
        if self.error is not None and status >= _BROKEN:
            reply = self.failed(self.error)
            return response if reply is None else _instead_of(response, reply)
        reply = self.end(status, self._kept(response))
        if reply is not None:
            return _instead_of(response, reply)
        _add_headers(response, self.echo)
        return response

    def _kept(self, response: DjangoResponse) -> bytes | Unkept:
        """Return what is kept of the response, if it is."""
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
    """One covered request of a coroutine view: the same, and what needs a database has a thread."""

    def __init__(self, rules: Rules, asked: Asked, request: DjangoRequest) -> None:
        """Read nothing and claim nothing yet."""
        super().__init__(rules, asked.echo)
        self._asked = asked
        self._request = request
        self._body = rules.body(asked)
        self.error: BaseException | None = None
        """What the view raised and Django made a response of."""

    async def start(self) -> Reply | None:
        """Return the answer, if there is one already; None: the request runs."""
        rules = self.rules
        try:
            if not _read(self._request, self._body):
                return Reply(_GONE, [])  # nobody is there to read it, and nothing has begun
            rules.verify(self._asked, self._body, _url_of(rules, self._request))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        return None if rules.by_handler else await self.claim_for(UNSET)

    async def claim_for(self, principal: str | None) -> Reply | None:
        """Return the answer, if this is a duplicate or is refused; None: the request runs."""
        try:
            call = await _ask_async(self.rules.call, self._asked, self._body, principal)
            return await self.claim(self._asked, self._body, call)
        except OncekeyError as error:
            return self.rules.answers.refusal(error)

    async def respond(self, get_response: Callable[[DjangoRequest], Any]) -> DjangoResponse:
        """Return the response, when it is recorded how the request ended."""
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
        if response.streaming:  # it may yet read the request
            response._resource_closers.append(self.close)  # noqa: SLF001 - Django has no other way
        else:
            self.close()
        return response

    def close(self) -> None:
        """Drop the body of the request."""
        self._body.close()

    async def _answered(self, response: DjangoResponse) -> DjangoResponse:
        """Return the response to send: this one, or another that stands in its place."""
        if self.run is None or self.run.ended:  # the view may have ended it itself
            return response
        status = response.status_code
        if self.error is not None and status >= _BROKEN:
            reply = await self.failed(self.error)
            return response if reply is None else _instead_of(response, reply)
        reply = await self.end(status, await self._kept(response))
        if reply is not None:
            return _instead_of(response, reply)
        _add_headers(response, self.echo)
        return response

    async def _kept(self, response: DjangoResponse) -> bytes | Unkept:
        """Return what is kept of the response, if it is."""
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
    """Return the exchange that runs the request, or its answer; None: it is not covered."""
    try:
        if rules.status is not None and rules.status.meant(request.method, request.path):
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
    """Return the exchange that runs the request, or its answer; None: it is not covered."""
    try:
        if rules.status is not None and rules.status.meant(request.method, request.path):
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
    """Return what the function says; one that needs the database says it on Django's thread."""
    try:
        return function(*args)
    except SynchronousOnlyOperation:
        return await sync_to_async(function)(*args)


# Requests and responses of Django in the terms of the rules, and back.


def _find(rules: Rules, request: DjangoRequest) -> Asked | None:
    """The request, if it is covered."""
    places = _places(rules.profile.keys)
    if places and not rules.required and not any(name in request.META for name in places):
        return None  # most requests have no key, and cost no more than this
    headers = _headers_of(request)
    return rules.find(request.method, request.path, headers, lambda: _request_of(request, headers))


@lru_cache(64)
def _places(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Where Django has the headers that may hold a key; empty if the body may hold it too."""
    if any(key.startswith("/") for key in keys):
        return ()
    return tuple(f"HTTP_{key.upper().replace('-', '_')}" for key in keys)


def _request_of(request: DjangoRequest, headers: Headers | None = None) -> Request:
    """The request as the rules see it."""
    return Request(
        request.method,
        request.path,
        _bytes(request.META.get("QUERY_STRING", "")),
        _headers_of(request) if headers is None else headers,
        request,
        lambda: _user(request),
    )


def _headers_of(request: DjangoRequest) -> Headers:
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


def _url_of(rules: Rules, request: DjangoRequest) -> str:
    """The URL that was called, where a signature may cover it."""
    return "" if rules.profile.signature is None else request.build_absolute_uri()


# The body


def _read(request: DjangoRequest, body: Body) -> bool:
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


def _again(body: Body) -> Any:
    """A file of the body that can be closed without closing the body."""
    file = body.stream()
    return file if isinstance(file, io.BytesIO) else io.BufferedReader(_BodyReader(file))


class _BodyReader(io.RawIOBase):
    """A place in a file that others read too."""

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


# What the view sees


@contextmanager
def _inside(request: DjangoRequest, exchange: object) -> Iterator[None]:
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


def _answered_headers(response: DjangoResponse) -> Headers:
    """The headers of a response. Cookies are not among them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]


def _response_of(reply: Reply) -> DjangoResponse:
    """A reply in Django's terms, where each header has one value."""
    response = HttpResponse(reply.body, status=reply.status)
    del response.headers["Content-Type"]
    for header, value in reply.headers:
        name, text = header.decode("latin-1"), value.decode("latin-1")
        before = response.headers.get(name)
        response.headers[name] = text if before is None else f"{before}, {text}"
    return response


def _instead_of(response: DjangoResponse, reply: Reply) -> DjangoResponse:
    """The reply; what belongs to the response is closed when the reply is."""
    instead = _response_of(reply)
    instead._resource_closers += response._resource_closers  # noqa: SLF001 - `close` would end the request
    return instead


def _add_headers(response: DjangoResponse, headers: Headers) -> None:
    for name, value in headers:
        response.headers[name.decode("latin-1")] = value.decode("latin-1")


# Streaming responses: those that end soon are kept, others are not waited for.


def _hold(rules: Rules, response: DjangoResponse) -> bytes | Unkept:
    """All that the response says, or why it is not waited for. It still says all of it."""
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
    """All that the response says, or why it is not waited for. It still says all of it."""
    if rules.endless(_answered_headers(response)):
        return _ENDLESS
    pump, parts = _Pump(response), _Parts(rules)
    response._resource_closers.append(pump.stop)  # noqa: SLF001 - Django has no other way
    unkept: Unkept | None = None
    while unkept is None:
        timer = asyncio.timeout(parts.patience())
        try:
            async with timer:
                part = await pump.part()
        except TimeoutError:
            if not timer.expired():  # the stream has raised it
                raise
            unkept = _SLOW
        else:
            if part is _END:
                break
            unkept = parts.add(part)
    response.streaming_content = pump.all(parts.held)
    return b"".join(parts.held) if unkept is None else unkept


class _Parts:
    """What was held back so far."""

    def __init__(self, rules: Rules) -> None:
        self.held: list[bytes] = []
        self._room = rules.terms.max_result
        self._until: float | None = None

    def add(self, part: bytes) -> Unkept | None:
        """One more is held; why it is not to be more."""
        if self._until is None:
            self._until = monotonic() + _HELD_FOR
        self.held.append(part)
        self._room -= len(part)
        return _LARGE if self._room < 0 else None

    def patience(self) -> float | None:
        """How long one more may take; the first may take for ever."""
        return None if self._until is None else max(0.0, self._until - monotonic())


class _Pump:
    """Gives the parts of a stream one by one, and can be given up on without cutting it off.

    The stream is read by one task from beginning to end, as the code in it may expect.
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
        """Those that were held back, and then those that are left."""
        try:
            for part in held:
                yield part
            while (part := await self.part()) is not _END:
                yield part
        finally:
            self._task.cancel()


# The setting `ONCEKEY`: what it may hold, and the check that `manage.py` makes of it.


def _rules_of(setting: object) -> Rules:
    """The rules that the setting means; ConfigurationError when it is wrong."""
    if not isinstance(setting, Mapping):
        msg = f"ONCEKEY must be a dict such as {{'store': 'redis://...'}}, but it is {setting!r}"
        raise ConfigurationError(msg)
    try:
        given = {name: _meant(name, value) for name, value in setting.items()}
        return Rules(_once(given), **given)
    except ConfigurationError as error:
        msg = f"ONCEKEY is wrong: {error}"
        raise ConfigurationError(msg) from None


def _meant(name: object, value: object) -> Any:
    """The value, or what it names."""
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
    """The `Once` that is given, or the one of the store: the same for all who name that store."""
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
    """What is wrong with the setting, in one sentence."""
    try:
        _rules_of(getattr(settings, "ONCEKEY", {}))
    except ConfigurationError as error:
        return [checks.Error(str(error), id="oncekey.E001")]
    return []
