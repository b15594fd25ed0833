"""Middleware for WSGI: Flask, Pyramid, Bottle and any other.

A request that is not covered is passed on unchanged. A covered request is read completely, and its
response is held back until the end of the request is recorded, so that no client is told "done"
before.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from http.client import responses
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Final, Unpack
from wsgiref.util import request_uri

from oncekey.attempt import Attempt, attempt_of
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.body import Body, LateBody
from oncekey.http.errors import AnsweredError
from oncekey.http.exchange import Exchange
from oncekey.http.request import Headers, Request, called, nobody
from oncekey.http.response import Reply, Unkept, says_when
from oncekey.http.routers import of_wsgi
from oncekey.http.rules import Asked, Rules, Sent, Settings
from oncekey.once import Once

__all__ = ["AnsweredError", "IdempotencyMiddleware", "claim", "exchange_of"]

Environ = dict[str, Any]
Texts = list[tuple[str, str]]
Trouble = tuple[type[BaseException], BaseException, TracebackType | None]
Write = Callable[[bytes], object]
StartResponse = Callable[..., Write]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

PLACE: Final = "oncekey.exchange"
"""The key of the exchange in the environ."""

_HELD_FOR: Final = 1.0
_CHUNK: Final = 1 << 16
_BARE: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})  # headers without the prefix HTTP_


class IdempotencyMiddleware:
    """WSGI middleware that runs a request once, even if it arrives twice.

    With `claim="handler"` nothing is claimed, and no body of a known length is read, before the
    handler calls `claim(environ, ...)`, after it has authenticated the user. The middleware then
    only holds the response back.
    """

    def __init__(self, app: App, once: Once | None = None, **settings: Unpack[Settings]) -> None:
        """Check every setting. Nothing is opened before the first request."""
        self.app: Final = app
        self.rules: Final = Rules(once, **settings)
        self.rules.routes.answered_by(partial(of_wsgi, app))
        self._keys = [name for name in self.rules.profile.keys if not name.startswith("/")]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Run the application and return its response, or return the one that is kept."""
        rules = self.rules
        method, path, root = environ["REQUEST_METHOD"], *_placed(environ)
        if rules.status is not None and rules.status.meant(method, path, root):
            return _send(start_response, self._told(_request_of(environ, path, root)))
        try:
            sent = _sent(self._keys, environ)  # most requests need no other headers
            request = partial(_request_of, environ, path, root)
            asked = rules.find(method, path, root, sent, request)
        except OncekeyError as error:
            return _send(start_response, rules.answers.refusal(error))
        if asked is None:
            environ.setdefault(PLACE, None)  # tells `claim` that the middleware is installed
            return self.app(environ, start_response)
        body = asked.body
        with contextlib.ExitStack() as closing:
            closing.callback(body.close)
            found = self._claimed(asked, body, environ)
            if isinstance(found, Reply):
                return _send(start_response, found)
            closing.pop_all()  # from here on the exchange closes the body
        return WSGIResponse(found, start_response).run(self.app, _inner(environ, found, body))

    def _claimed(self, asked: Asked, body: Body, environ: Environ) -> WSGIExchange | Reply:
        """Read and claim the request. Return its exchange, or the reply if it must not run."""
        rules = self.rules
        try:
            source = WSGIInput(environ)
            if source.refusal is not None:
                return source.refusal
            if rules.by_handler and rules.profile.signature is None and source.left:
                return WSGIExchange(rules, asked, body, source)
            while chunk := source.read(_CHUNK):
                body.feed(chunk)
            if source.left:
                return _SHORT  # the client is gone
            if rules.profile.signature is not None:
                rules.verify(asked, body, _url_of(environ))
            exchange = WSGIExchange(rules, asked, body)
            reply = None
            if not rules.by_handler:
                reply = exchange.claim(asked, body, rules.call(asked, body))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        exchange.stream.seek(0)  # reading the body for the claim has moved it to its end
        return exchange if reply is None else reply

    def _told(self, request: Request) -> Reply:
        """Return the reply to a request for a status."""
        rules = self.rules
        try:
            pointing = rules.looked_for(request)
            record = None
            if pointing is not None:
                record = rules.once.get(pointing.key, scope=pointing.scope)
            return rules.told(pointing, record)
        except OncekeyError as error:
            return rules.answers.refusal(error)


def claim(environ: Environ, *, scope: str | None = UNSET) -> Attempt | None:
    """Claim the request in a handler that has authenticated it. Return the attempt.

    Return None if the request has no key. For a duplicate raise AnsweredError: the middleware
    sends the first answer again. `scope` is the owner of the request, such as the id of the user.
    With None the request runs unprotected. With EVERYBODY all clients may see each other's answers.
    """
    exchange = exchange_of(environ)
    return None if exchange is None else exchange.claim_for(scope)


def exchange_of(environ: Environ) -> WSGIExchange | None:
    """Return the exchange of the request, or None if it is not covered or has no key.

    Raise ConfigurationError if the middleware is missing.
    """
    try:
        exchange: WSGIExchange | None = environ[PLACE]
    except (KeyError, TypeError, IndexError):
        if isinstance(environ, dict) and "REQUEST_METHOD" in environ:
            msg = "nothing can be claimed here: oncekey.http.wsgi.IdempotencyMiddleware is missing"
        else:
            msg = f"claim takes the environ of the request, not {type(environ).__name__}"
        raise ConfigurationError(msg) from None
    return exchange


def _send(start_response: StartResponse, reply: Reply) -> list[bytes]:
    _send_start(start_response, reply)
    return [reply.body]


class WSGIExchange(Exchange):
    """One covered request with its whole body."""

    def __init__(
        self, rules: Rules, asked: Asked, body: Body, source: WSGIInput | None = None
    ) -> None:
        """Start without a claim. With a `source` nothing of the body has been read yet."""
        super().__init__(rules, asked.echo)
        self._source = source
        self._late = None if source is None else LateBody(source.read, body)
        self.stream: Any = body.stream() if self._late is None else io.BufferedReader(self._late)
        self.asked = asked
        self._body = body
        self._error: BaseException | None = None

    def ask_for(self, principal: str | None) -> Reply | None:
        """Claim for a handler. Return the reply if it must not run, or None if it is to run."""
        if self.run is not None:
            if principal is not UNSET and not self.rules.by_handler:
                msg = "the middleware has claimed already; tell it claim='handler'"
                raise ConfigurationError(msg)
            return None
        if self.sent:
            raise ConfigurationError("claim before the response begins: a part of it was sent")
        asked, body = self.asked, self._body
        read = self.stream.tell() if self._late is None else 0
        try:
            if self._late is not None and self._source is not None:
                self._late.read_rest()
                if self._source.left:
                    return _SHORT
            reply = self.claim(asked, body, self.rules.call(asked, body, principal))
        except OncekeyError as error:
            return self.rules.answers.refusal(error)
        finally:
            if self._late is None:
                self.stream.seek(read)  # the fingerprint has moved the position
        if reply is None:
            self.become_current()
        return reply

    def claim_for(self, principal: str | None) -> Attempt | None:
        """Claim for a handler. Return the attempt, or None if there is no key.

        Raise AnsweredError if the request must not run.
        """
        self.answer = self.ask_for(principal)
        if self.answer is not None:
            raise AnsweredError(self.answer)
        return None if self.run is None else attempt_of(self.run)

    def unclaimed(self, status: int) -> Reply | None:
        """Return a reply if a response without a claim must not be sent."""
        return self.rules.unclaimed(self.asked, self._body, status)

    def become_current(self) -> None:
        """Make the run current, so that the application's code finds its attempt."""
        if self.run is not None:
            self.run.become_current()

    def stop_being_current(self) -> None:
        """Make the outer run current again: the thread leaves the application's code."""
        if self.run is not None:
            self.run.stop_being_current()

    def raised(self, error: BaseException) -> None:
        """Note an exception that the application turns into a response itself."""
        self._error = error

    def answered(self, status: int, headers: Headers, body: bytes) -> Reply | None:
        """Record the whole response. Return a reply if it is to be sent instead."""
        if self._error is not None:
            return self.failed(self._error)
        kept = self.rules.kept(status, headers, body)
        return self.end(status, kept, later=says_when(status, headers))

    def not_replayable(self, status: int, why: str) -> Reply | None:
        """Record that the response cannot be replayed. Return a reply if it is sent instead."""
        return self.end(status, Unkept(why)) if self.keeps(status) else None

    def over(self) -> None:
        """End the run if the application has not ended it, and close the body."""
        try:
            run = self.open()
            if run is not None and self._error is not None:
                run.fail(self._error)
            else:
                super().over()
        finally:
            if self.run is not None:
                self.run.abandon()
            self._body.close()


class WSGIResponse:
    """The response for the client. It is also the iterable of one that is passed on in parts."""

    def __init__(self, exchange: WSGIExchange, start_response: StartResponse) -> None:
        """Start before the application is called."""
        self._exchange = exchange
        self._rules = exchange.rules
        self._to_client = start_response
        self._write_to_client: Write | None = None
        self._start: tuple[str, Texts] | None = None
        self._made: Iterator[bytes] = iter(())
        self._made_all = False
        self._close: Callable[[], object] | None = None
        self._parts: list[bytes] = []
        self._held = 0
        self._patient_until: float | None = None
        self._begun = monotonic()
        self._endless = False
        self._deaf = False
        self._then: BaseException | None = None

    def run(self, app: App, environ: Environ) -> Iterable[bytes]:
        """Run the application. Return its response, after the end of the request is recorded."""
        exchange = self._exchange
        exchange.become_current()
        try:
            made = app(environ, self._begin)
            self._close = getattr(made, "close", None)
            self._made = iter(made)
            for part in self._made:
                self._take(part)
                if exchange.sent:
                    return self
            self._finish()
        except AnsweredError as answered:
            self._reply(answered.reply)
        except BaseException as error:
            reply = exchange.failed(error)
            if reply is None:
                self._made_all = True
                self.close()
                raise
            self._reply(reply)
            self._then = error
        finally:
            exchange.stop_being_current()
        self._made_all = True
        if self._then is not None:
            return self
        exchange.over()
        return self._parts if self._close is None else _Closing(self._parts, self._close)

    # The interface for the application

    def _begin(self, status: str, headers: Texts, exc_info: Trouble | None = None) -> Write:
        """Take status and headers: the `start_response` that the application calls."""
        if exc_info is not None:
            try:
                if self._exchange.sent:
                    raise exc_info[1].with_traceback(exc_info[2])
                self._exchange.raised(exc_info[1])
                self._parts.clear()  # nothing of the failed response was sent
                self._held = 0
            finally:
                exc_info = None  # avoid a cycle: its traceback refers to this frame
        elif self._start is not None:
            msg = "start_response was called again, without exc_info"
            raise RuntimeError(msg)
        self._start = status, headers
        return self._write

    def _write(self, part: bytes) -> None:
        """Send a part at once: the `write` of PEP 3333, for old applications."""
        self._take(part)
        if self._exchange.sent:
            assert self._write_to_client is not None  # noqa: S101 - the response has begun
            for held in self._parts:
                self._write_to_client(held)
            self._parts.clear()

    # Holding and sending

    def _take(self, part: bytes) -> None:
        if not part or self._deaf:
            return
        self._parts.append(bytes(part))  # the application may use its buffer again
        if self._exchange.sent:
            return
        if self._exchange.run is None:
            self._pass_on()
            return
        self._held += len(part)
        why = self._why_not_wait()
        if why:
            status, _ = self._started()
            reply = self._exchange.not_replayable(int(status[:3]), why)
            self._pass_on() if reply is None else self._reply(reply)

    def _why_not_wait(self) -> str:
        """Return why the response is not held back any longer, or an empty text while it is."""
        now = monotonic()
        if self._patient_until is None:
            self._patient_until = now + _HELD_FOR
            self._endless = self._rules.endless(_bytes(self._started()[1]))
        if self._endless:
            return "the response is a stream"
        if self._held > self._rules.terms.max_result:
            return "the response is larger than max_result"
        if now > self._patient_until:
            return "the response takes longer than a second to write"
        return ""

    def _finish(self) -> None:
        """Record the response, which is complete, then send it."""
        if self._exchange.sent:
            return
        status, headers = self._started()
        if self._exchange.run is not None:
            body = b"".join(self._parts)
            self._parts = [body]
            reply = self._exchange.answered(int(status[:3]), _bytes(headers), body)
            if reply is not None:
                self._reply(reply)
                return
        self._pass_on()

    def _started(self) -> tuple[str, Texts]:
        if self._start is None:
            msg = "the application did not call start_response"
            raise RuntimeError(msg)
        return self._start

    def _pass_on(self) -> None:
        """Send the headers of the application. The parts follow as they come."""
        exchange = self._exchange
        if exchange.answer is not None:  # sent in place of what the framework makes of it
            self._reply(exchange.answer)
            return
        status, headers = self._started()
        if exchange.run is not None:
            headers = [*headers, *_texts(exchange.echo)]
        else:
            reply = exchange.unclaimed(int(status[:3]))
            if reply is not None:
                self._reply(reply)
                return
            headers = [*headers, *_texts(exchange.asked.notice)]
        self._write_to_client = self._to_client(status, headers)
        exchange.sent = True

    def _reply(self, reply: Reply) -> None:
        """Send this reply, and nothing more of the application's response."""
        self._write_to_client = _send_start(self._to_client, reply)
        self._parts = [reply.body]
        self._deaf = True
        self._exchange.sent = True

    # The iterable, while the application still writes

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._parts:
            return self._parts.pop(0)
        if self._then is not None:  # after the reply, so that the server logs the error
            error, self._then = self._then, None
            raise error
        while True:
            part = self._advance()
            if not self._deaf:
                return part

    def _advance(self) -> bytes:
        exchange = self._exchange
        exchange.become_current()
        try:
            return next(self._made)
        except BaseException as error:
            self._made_all = True
            if not isinstance(error, StopIteration):
                exchange.failed(error)
            exchange.over()
            raise
        finally:
            exchange.stop_being_current()

    def close(self) -> None:
        """Run the application to its end, also if the client is gone, and call its `close`.

        A response without an end would keep the thread for ever: after `max_run` it is closed.
        """
        longest = self._rules.terms.max_run or inf
        try:
            if self._exchange.run is not None and not self._endless:
                while not self._made_all and monotonic() - self._begun < longest:
                    self._advance()
        except StopIteration:
            return
        finally:
            try:
                if self._close is not None:
                    self._close()
            finally:
                self._exchange.over()


class _Closing(list[bytes]):
    """A complete response with the `close` of the application."""

    def __init__(self, parts: list[bytes], close: Callable[[], object]) -> None:
        super().__init__(parts)
        self.close = close


def _send_start(start_response: StartResponse, reply: Reply) -> Write:
    """Send the status and the headers of the reply."""
    status = f"{reply.status} {responses.get(reply.status, 'Unknown')}"
    return start_response(status, _texts(reply.headers))


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> Texts:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _bytes(headers: Texts) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _placed(environ: Environ) -> tuple[str, str]:
    """Return the path as the client sees it, and the prefix that the application does not see."""
    root: str = environ.get("SCRIPT_NAME", "").rstrip("/")
    path: str = root + environ.get("PATH_INFO", "")
    return (path, root) if path.isascii() else (_text(path), _text(root))


def _text(path: str) -> str:
    """Return the text of a path, whose bytes PEP 3333 decodes as latin-1.

    Bytes that are not UTF-8 must stay different: different paths are different requests.
    """
    return path.encode("latin-1").decode("utf-8", "backslashreplace")


def _sent(names: Iterable[str], environ: Environ) -> Sent:
    """Return what counts of the headers. The server joins repeated ones with commas."""
    sent = ((name, environ.get(_variable(name))) for name in names)
    pairs = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in sent
        if value is not None
    ]
    kind, encoding = environ.get("CONTENT_TYPE", ""), environ.get("HTTP_CONTENT_ENCODING", "")
    return Sent(pairs, kind.encode("latin-1"), encoding.encode("latin-1"))


@lru_cache(1024)
def _variable(name: str) -> str:
    return "HTTP_" + name.upper().replace("-", "_")


def _headers(environ: Environ) -> Headers:
    return [
        (_name(variable), value.encode("latin-1"))
        for variable, value in environ.items()
        if variable.startswith("HTTP_") or (variable in _BARE and value)
    ]


@lru_cache(1024)
def _name(variable: str) -> bytes:
    return variable.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1")


def _request_of(environ: Environ, path: str, root: str) -> Request:
    """Return the request for the rules. Its user is `REMOTE_USER`, if that is set."""
    return Request(
        environ["REQUEST_METHOD"],
        path,
        environ.get("QUERY_STRING", "").encode("latin-1"),
        _headers(environ),
        environ,
        (lambda: environ["REMOTE_USER"] or None) if "REMOTE_USER" in environ else nobody,
        root,
    )


def _url_of(environ: Environ) -> str:
    """Return the URL, as the client sent it if the server has kept it."""
    raw = environ.get("REQUEST_URI") or environ.get("RAW_URI") or ""
    whole = request_uri(environ)
    if not raw.startswith("/"):
        return whole
    scheme, _, rest = whole.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}{called(raw, _placed(environ)[1])}"


def _plain(status: int, text: bytes) -> Reply:
    return Reply(
        status, [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))], text
    )


_SHORT: Final = _plain(400, b"The body is shorter than Content-Length says.")


class WSGIInput:
    """The body of a request, as the server gives it."""

    def __init__(self, environ: Environ) -> None:
        """Find out where the body ends. `refusal` is a reply if nobody can tell."""
        self._stream, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH") or ""
        chunked = "HTTP_TRANSFER_ENCODING" in environ
        terminated = environ.get("wsgi.input_terminated", False)
        self.refusal: Reply | None = None
        if chunked and not terminated:
            text = b"Send a Content-Length: this server cannot tell where the body ends."
            self.refusal = _plain(411, text)
        elif length and not (length.isascii() and length.isdecimal()):
            self.refusal = _plain(400, b"Content-Length is no number.")
        else:
            unknown = chunked or (terminated and not length)
            self.left = None if unknown else int(length or 0)
            """The number of bytes that must still come, or None if the stream ends by itself."""

    def read(self, size: int) -> bytes:
        """Return at most so many bytes, and none at the end."""
        left = self.left
        chunk: bytes = self._stream.read(size if left is None else min(size, left))
        if left is not None:
            self.left = left - len(chunk)
        return chunk


def _inner(environ: Environ, exchange: WSGIExchange, body: Body) -> Environ:
    """Return the environ for the application, so that its response is uncompressed and whole."""
    seen = {
        **environ,
        "wsgi.input": exchange.stream,
        "wsgi.input_terminated": True,
        "HTTP_ACCEPT_ENCODING": "identity",
        PLACE: exchange,
    }
    if "HTTP_TRANSFER_ENCODING" in seen or body.size:  # else it is unread, or there is none
        seen["CONTENT_LENGTH"] = str(body.size)
    seen.pop("HTTP_TRANSFER_ENCODING", None)
    seen.pop("wsgi.file_wrapper", None)  # its response would bypass the middleware
    return seen
