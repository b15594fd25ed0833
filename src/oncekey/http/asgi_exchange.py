"""One covered request of ASGI, from its claim to its response.

A server has many of them at once, and each waits twice for the store: whatever lives that long is
looked at by the collector again and again. So nothing is kept that is not needed any more.
"""

from __future__ import annotations

from oncekey.attempt import AsyncAttempt, bridge, forbid_nesting
from oncekey.engine.ticket import unprotected
from oncekey.errors import ConfigurationError, InProgressError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.asgi_messages import App, Scope, of_body, send_reply
from oncekey.http.asgi_request import find, url_of
from oncekey.http.asgi_response import Response
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError
from oncekey.http.protocol import Asked
from oncekey.http.reply import Reply


class Exchange(Response):
    """What happens to one request: it is read and claimed, and the application runs."""

    _unclaimed: Asked | None = None  # what a handler can still claim
    _body: Body | None = None  # where that needs it, or it is on disk

    async def enter(self, scope: Scope) -> bool | None:
        """Whether the application is to run; None: the request is not covered.

        If it is not, the client has its answer, or is gone.
        """
        rules = self._rules
        try:
            asked = find(rules, scope)
        except OncekeyError as error:
            await send_reply(self._to_client, rules.answers.refusal(error))
            return False
        if asked is None:
            return None
        body, runs = rules.body(asked), False
        try:
            while True:
                message = await self._from_client()
                if message["type"] == "http.disconnect":
                    return False  # and nothing has begun
                body.feed(message.get("body", b""))
                if not message.get("more_body", False):
                    break
            if rules.profile.signature is not None:
                rules.verify(asked, body, url_of(scope))
            reply = None if rules.by_handler else await self._claim(asked, body)
            runs = reply is None
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        finally:
            if not runs:
                body.close()
        if reply is None:
            self._keep(asked, body)
        else:
            await send_reply(self._to_client, reply)
        return runs

    def _keep(self, asked: Asked, body: Body) -> None:
        """What is needed while the application runs."""
        self._echo = asked.echo
        if body.spooled:
            self._messages = of_body(body)
        else:
            self._message = {"type": "http.request", "body": body.whole(), "more_body": False}
        if self._attempt is None:
            self._unclaimed = asked
            self._body = body
        elif body.spooled:
            self._body = body

    async def _claim(self, asked: Asked, body: Body, principal: str | None = UNSET) -> Reply | None:
        """The answer of the first request, if there is one; None: this one runs."""
        rules = self._rules
        call = rules.call(asked, body, principal)
        if call is None:
            return None
        core, active, call = rules.once.use(call, call.terms)
        engine = core.engine_async()
        if active:
            forbid_nesting(call, engine.observers)
            try:
                ticket = await engine.enter(call)
            except InProgressError as error:
                reply = rules.answers.refusal(error)
                if rules.status is None:
                    return reply
                record = await rules.once.get_async(call.key, scope=call.scope)
                return rules.accepted(reply, asked, call, record)
            if ticket.duplicate:
                rules.answered(asked, body, call)
                return rules.replay(ticket.record, asked.echo)
        else:
            ticket = unprotected(call)
        self._attempt = attempt = AsyncAttempt(engine, ticket)
        attempt._keeps = False  # noqa: SLF001 - it has a response
        return None

    async def claim_for(self, principal: str | None) -> AsyncAttempt | None:
        """The attempt of a handler that claims by itself; None where there is no key."""
        rules, asked, body = self._rules, self._unclaimed, self._body
        if principal is not UNSET and not rules.by_handler:
            raise ConfigurationError("the middleware has claimed already; tell it claim='handler'")
        if self._attempt is None and asked is not None and body is not None:
            try:
                reply = await self._claim(asked, body, principal)
            except OncekeyError as error:
                reply = rules.answers.refusal(error)
            if reply is not None:
                self._answer = reply
                raise AnsweredError(reply)
            self._become_current()
        return self._attempt

    def _become_current(self) -> None:
        if self._attempt is not None:
            self._attempt._become_current()  # noqa: SLF001 - a `with` block has one end, this has many
            bridge(self._attempt)

    def _let_go(self) -> None:
        """The attempt is over, and knows neither its context nor itself any more.

        Else every request would leave garbage that only the collector finds.
        """
        attempt = self._attempt
        if attempt is not None:
            attempt._let_go()  # noqa: SLF001 - see above
            try:  # noqa: SIM105 - it costs less
                attempt._stop_being_current()  # noqa: SLF001 - see above
            except RuntimeError:  # a `with` block of the handler has done so
                pass
            attempt._bridge = None  # noqa: SLF001 - see above

    async def run(self, app: App, scope: Scope) -> None:
        """The application has run, and what it answered is recorded and sent."""
        self._become_current()
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            if self._answer is None or not isinstance(error, Exception):
                await self._failed(error)
                raise
        else:
            await self._returned()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._let_go()
            if self._body is not None:
                self._body.close()
        if self._answer is not None:
            await self._reply(self._answer)
