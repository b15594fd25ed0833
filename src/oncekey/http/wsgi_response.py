"""A response of a WSGI application: held back until it is recorded how the request ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http.client import responses
from time import monotonic
from types import TracebackType
from typing import Any, Final

from oncekey.http.errors import AnsweredError
from oncekey.http.reply import Reply
from oncekey.http.request import Headers
from oncekey.http.wsgi_exchange import Exchange

Environ = dict[str, Any]
Texts = list[tuple[str, str]]
Trouble = tuple[type[BaseException], BaseException, TracebackType | None]
Write = Callable[[bytes], object]
StartResponse = Callable[..., Write]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_HELD_FOR: Final = 1.0


class Response:
    """What the client gets. It is the iterable of a response that is passed on as it comes."""

    def __init__(self, exchange: Exchange, start_response: StartResponse) -> None:
        """The application has not been called yet."""
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
        self._endless = False
        self._deaf = False
        self._then: BaseException | None = None

    def run(self, app: App, environ: Environ) -> Iterable[bytes]:
        """The response, which may be sent now: it is recorded how the request ended."""
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

    # What the application is given

    def _begin(self, status: str, headers: Texts, exc_info: Trouble | None = None) -> Write:
        """The `start_response` of the application."""
        if exc_info is not None:
            try:
                if self._exchange.sent:
                    raise exc_info[1].with_traceback(exc_info[2])
                self._exchange.raised(exc_info[1])
                self._parts.clear()  # nobody has seen the response that failed
                self._held = 0
            finally:
                exc_info = None  # it holds this frame
        elif self._start is not None:
            msg = "start_response was called again, without exc_info"
            raise RuntimeError(msg)
        self._start = status, headers
        return self._write

    def _write(self, part: bytes) -> None:
        """What old applications call to send a part at once."""
        self._take(part)
        if self._exchange.sent:
            assert self._write_to_client is not None  # noqa: S101 - the response has begun
            for held in self._parts:
                self._write_to_client(held)
            self._parts.clear()

    # What becomes of it

    def _take(self, part: bytes) -> None:
        if not part or self._deaf:
            return
        self._parts.append(part)
        if self._exchange.sent:
            return
        if self._exchange.attempt is None:
            self._pass_on()
            return
        self._held += len(part)
        why = self._why_not_wait()
        if why:
            status, _ = self._started()
            reply = self._exchange.not_replayable(int(status[:3]), why)
            self._pass_on() if reply is None else self._reply(reply)

    def _why_not_wait(self) -> str:
        """Why the rest of the response is not waited for; empty while it is."""
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
        """The whole response is here: it is recorded, then sent."""
        if self._exchange.sent:
            return
        status, headers = self._started()
        if self._exchange.attempt is not None:
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
        """The client has the application's headers, and gets the parts that follow."""
        exchange = self._exchange
        if exchange.answer is not None:  # and a framework has made something else of it
            self._reply(exchange.answer)
            return
        status, headers = self._started()
        if exchange.attempt is not None:
            headers = [*headers, *_texts(exchange.asked.echo)]
        self._write_to_client = self._to_client(status, headers)
        exchange.sent = True

    def _reply(self, reply: Reply) -> None:
        """The client has our answer, and hears nothing more of the application's."""
        self._write_to_client = send_start(self._to_client, reply)
        self._parts = [reply.body]
        self._deaf = True
        self._exchange.sent = True

    # The iterable, while the application still writes

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._parts:
            return self._parts.pop(0)
        if self._then is not None:  # the client has its answer; the server hears of the error
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
        """The application's work is done, also if the client has left, and it was told so."""
        try:
            if self._exchange.attempt is not None and not self._endless:
                while not self._made_all:
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
    """A response that is whole; its `close` is the application's."""

    def __init__(self, parts: list[bytes], close: Callable[[], object]) -> None:
        super().__init__(parts)
        self.close = close


def send_start(start_response: StartResponse, reply: Reply) -> Write:
    """The client has the status and the headers of the reply."""
    status = f"{reply.status} {responses.get(reply.status, 'Unknown')}"
    return start_response(status, _texts(reply.headers))


def _texts(headers: Headers) -> Texts:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _bytes(headers: Texts) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
