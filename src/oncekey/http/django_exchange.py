"""One covered request of Django, from its claim to its response. Its twin awaits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from oncekey.attempt import Attempt
from oncekey.core.call import Call
from oncekey.errors import InProgressError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.django_colours import ask, enter
from oncekey.http.django_request import (
    DjangoRequest,
    DjangoResponse,
    answered_headers,
    find,
    inside,
    instead_of,
    read,
    request_of,
    response_of,
    url_of,
)
from oncekey.http.django_streams import hold
from oncekey.http.protocol import Asked, Rules
from oncekey.http.reply import Reply, Unkept, packed

_GONE: Final = 400
_BROKEN: Final = 500


class Exchange:
    """What happens to one request. Its response is held back until it is recorded."""

    def __init__(self, rules: Rules, asked: Asked, request: DjangoRequest) -> None:
        """Nothing is read and nothing is claimed yet."""
        self._rules = rules
        self._asked = asked
        self._request = request
        self._body = rules.body(asked)
        self._attempt: Attempt | None = None
        self._concluded = False
        self.error: BaseException | None = None
        """What the view raised and Django made a response of."""

    def start(self) -> Reply | None:
        """The answer, if there is one already; None: the request runs."""
        rules = self._rules
        try:
            if not read(self._request, self._body):
                return Reply(_GONE, [])  # nobody is there to read it, and nothing has begun
            rules.verify(self._asked, self._body, url_of(rules, self._request))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        return None if rules.by_handler else self.claim()

    def claim(self, principal: str | None = UNSET) -> Reply | None:
        """The answer, if this is a duplicate or cannot be claimed; None: the request runs."""
        rules = self._rules
        try:
            call = ask(rules.call, self._asked, self._body, principal)
            return None if call is None else self._claim(call)
        except OncekeyError as error:
            return rules.answers.refusal(error)

    def _claim(self, call: Call) -> Reply | None:
        rules = self._rules
        try:
            attempt = enter(rules.once, call)
        except InProgressError as error:
            reply = rules.answers.refusal(error)
            if rules.status is None:
                return reply
            record = rules.once.get(call.key, scope=call.scope)
            return rules.accepted(reply, self._asked, call, record)
        if attempt.duplicate:
            return rules.replay(attempt.record, self._asked.echo)
        attempt._keeps = False  # noqa: SLF001 - it has a response
        self._attempt = attempt
        return None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, the attempt is the current one, if there is one."""
        attempt = self._attempt
        if attempt is None:
            yield
            return
        attempt._become_current()  # noqa: SLF001 - a `with` block would end it too
        try:
            yield
        finally:
            attempt._stop_being_current()  # noqa: SLF001 - see above

    @property
    def claimed(self) -> bool:
        """Whether there is an attempt."""
        return self._attempt is not None

    def run(self, get_response: Callable[[DjangoRequest], Any]) -> DjangoResponse:
        """The response, when it is recorded how the request ended."""
        try:
            with self.current(), inside(self._request, self):
                response = get_response(self._request)
            response = self._answered(response)
        except BaseException as error:
            self.close()
            self._failed(error)
            raise
        finally:
            if self._attempt is not None:
                self._attempt._let_go()  # noqa: SLF001 - see above
        if response.streaming:  # it may yet read the request
            response._resource_closers.append(self.close)  # noqa: SLF001 - Django has no other way
        else:
            self.close()
        return response

    def close(self) -> None:
        """The body of the request is gone."""
        self._body.close()

    def _answered(self, response: DjangoResponse) -> DjangoResponse:
        """The response to send: this one, or another that stands in its place."""
        attempt = self._attempt
        if attempt is None or attempt._ended:  # noqa: SLF001 - the view may have ended it itself
            return response
        status = response.status_code
        if self.error is not None and status >= _BROKEN:
            reply = self._failed(self.error)
            return response if reply is None else instead_of(response, reply)
        reply = self._end(status, self._kept(response))
        if reply is not None:
            return instead_of(response, reply)
        for name, value in self._asked.echo:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        return response

    def _kept(self, response: DjangoResponse) -> bytes | Unkept:
        """What is kept of the response, if it is."""
        status, rules = response.status_code, self._rules
        if not response.streaming:
            body: bytes | Unkept = response.content
        elif self._keeps(status):
            with self.current():
                body = hold(rules, response)
        else:
            body = Unkept("the response is a stream")
        if isinstance(body, Unkept):
            return body
        return rules.kept(status, answered_headers(response), body)

    def _keeps(self, status: int) -> bool:
        asked_to = self._attempt is not None and bool(self._attempt._keeps)  # noqa: SLF001 - see above
        return self._rules.keeps(status, asked_to=asked_to)

    def _end(self, status: int, kept: bytes | Unkept) -> Reply | None:
        """None: the response may be sent now. Else what is sent in its place."""
        attempt, rules = self._attempt, self._rules
        assert attempt is not None  # noqa: S101 - the callers have looked
        self._concluded = True  # whatever goes wrong from here on, the work is done
        try:
            if self._keeps(status):
                attempt.complete(kept)
            else:
                uncertain = status in rules.profile.uncertain
                attempt.release(f"answered {status}", uncertain=uncertain)
        except OncekeyError as error:
            return rules.answers.refusal(error)
        if attempt.duplicate:  # it was taken over, and the winner's answer stands
            return rules.replay(attempt.record, self._asked.echo)
        return None

    def _failed(self, error: BaseException) -> Reply | None:
        """What is sent after an error instead of what Django says; None: nothing is."""
        attempt, rules = self._attempt, self._rules
        if attempt is None or attempt._ended or self._concluded:  # noqa: SLF001 - see above
            return None
        reply = rules.failure() if isinstance(error, Exception) else None
        if reply is None:
            attempt._fail(error)  # noqa: SLF001 - see above
            return None
        kept = packed(reply.status, reply.headers, reply.body)
        return self._end(reply.status, kept) or reply


def begin(rules: Rules, request: DjangoRequest) -> Exchange | DjangoResponse | None:
    """The exchange that runs the request, or its answer; None: it is not covered."""
    try:
        if rules.status is not None and rules.status.meant(request.method, request.path):
            return response_of(tell(rules, request))
        asked = ask(find, rules, request)
    except OncekeyError as error:
        return response_of(rules.answers.refusal(error))
    if asked is None:
        return None
    exchange = Exchange(rules, asked, request)
    try:
        reply = exchange.start()
    except BaseException:
        exchange.close()
        raise
    if reply is None:
        return exchange
    exchange.close()
    return response_of(reply)


def tell(rules: Rules, request: DjangoRequest) -> Reply:
    """What whoever asks is told about how a request is doing."""
    pointing = ask(rules.looked_for, request_of(request))
    record = None
    if pointing is not None:
        record = rules.once.get(pointing.key, scope=pointing.scope)
    return rules.told(pointing, record)
