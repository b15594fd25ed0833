"""One covered request of ASGI, from its claim to its response."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from oncekey import attempt_async
from oncekey.attempt_async import AsyncAttempt
from oncekey.bridge import bridge
from oncekey.call import Call
from oncekey.errors import ConfigurationError, InProgressError, OncekeyError
from oncekey.http.asgi_messages import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    lowered,
    of_body,
    send_reply,
)
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError
from oncekey.http.protocol import Asked, Rules
from oncekey.http.reply import Reply, Unkept, packed
from oncekey.options import UNSET

_HELD_FOR: Final = 1.0


class Exchange:
    """What happens to one request. Its response is held back until it is recorded."""

    def __init__(
        self, rules: Rules, asked: Asked, body: Body, receive: Receive, send: Send
    ) -> None:
        """Nothing is claimed yet."""
        self._rules = rules
        self._asked = asked
        self._body = body
        self._from_client = receive
        self._to_client = send
        self._attempt: AsyncAttempt | None = None
        self._messages = of_body(body)
        self._sending = False
        self._listening: asyncio.Event | None = None  # told when the response goes out
        self._timer: asyncio.Task[None] | None = None
        self._changing: asyncio.Lock | None = None  # there is one where there is a timer
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._held = 0
        self._answer: Reply | None = None
        self._passing = False
        self._concluded = False
        self._over = False
        self._deaf = False

    async def claim(self, call: Call | None) -> Reply | None:
        """The answer of the first request, if there is one; None: this one runs."""
        if call is None:
            return None
        rules = self._rules
        core, active, call = rules.once.use(call, call.terms)
        try:
            attempt = await attempt_async.enter(core.engine_async(), call, active=active)
        except InProgressError as error:
            reply = rules.answers.refusal(error)
            if rules.status is None:
                return reply
            record = await rules.once.get_async(call.key, scope=call.scope)
            return rules.accepted(reply, self._asked, call, record)
        if attempt.duplicate:
            return rules.replay(attempt.record, self._asked.echo)
        attempt._keeps = False  # noqa: SLF001 - it has a response
        self._attempt = attempt
        return None

    async def claim_for(self, principal: str | None) -> AsyncAttempt | None:
        """The attempt of a handler that claims by itself; None where there is no key."""
        if principal is not UNSET and not self._rules.by_handler:
            raise ConfigurationError("the middleware has claimed already; tell it claim='handler'")
        if self._attempt is None:
            try:
                reply = await self.claim(self._rules.call(self._asked, self._body, principal))
            except OncekeyError as error:
                reply = self._rules.answers.refusal(error)
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
            with contextlib.suppress(RuntimeError):  # a `with` block of the handler has done so
                attempt._stop_being_current()  # noqa: SLF001 - see above
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
            self._body.close()
        if self._answer is not None:
            await self._reply(self._answer)

    def detach(self) -> None:
        """Nobody waits for the response any more."""
        self._deaf = True

    # What the application reads

    async def receive(self) -> Message:
        """The body, piece by piece; then nothing, until the response goes out.

        A client that leaves before cannot stop the work; a stream may end with its client.
        """
        message = next(self._messages, None)
        if message is not None:
            return message
        if not self._sending:
            self._listening = self._listening or asyncio.Event()
            await self._listening.wait()
        if self._over or self._deaf:
            return {"type": "http.disconnect"}
        return await self._from_client()

    # What the application answers

    async def send(self, message: Message) -> None:
        """The response goes to the client when it is recorded how the request ended."""
        if self._answer is not None:
            return  # whatever the framework makes of AnsweredError is not the answer
        if self._attempt is None or self._passing:
            await self._forward(message)
            return
        if self._changing is None:
            await self._take(message)
            return
        async with self._changing:
            if self._passing:
                await self._forward(message)
            else:
                await self._take(message)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = {**message, "headers": lowered(message.get("headers", ()))}
            if self._rules.endless(self._start["headers"]):
                await self._let_through("the response is a stream")
        elif message["type"] == "http.response.body":
            await self._hold(message)
        else:
            await self._forward(message)

    async def _hold(self, message: Message) -> None:
        part = message.get("body", b"")
        self._parts.append(part)
        self._held += len(part)
        if not message.get("more_body", False):
            await self._finish()
        elif self._held > self._rules.terms.max_result:
            await self._let_through("the response is larger than max_result")
        elif self._timer is None:
            self._changing = asyncio.Lock()
            self._timer = asyncio.create_task(self._lose_patience(self._changing))

    async def _lose_patience(self, changing: asyncio.Lock) -> None:
        await asyncio.sleep(_HELD_FOR)
        async with changing:
            if not self._passing:
                await self._let_through("the response takes longer than a second to write")

    async def _finish(self) -> None:
        """The whole response is here: it is recorded, then sent."""
        assert self._start is not None  # noqa: S101 - ASGI: a body comes after a start
        status, headers = self._start["status"], self._start["headers"]
        body = b"".join(self._parts)
        if await self._ended(status, self._rules.kept(status, headers, body)):
            await self._forward_start()
            await self._forward({"type": "http.response.body", "body": body})
        self._passing = True

    async def _let_through(self, why: str) -> None:
        """The response is not waited for: it is recorded as not replayable, then sent."""
        assert self._start is not None  # noqa: S101 - ASGI: a body comes after a start
        keeps = self._keeps(self._start["status"])
        if not keeps or await self._ended(self._start["status"], Unkept(why)):
            await self._forward_start()
            body = b"".join(self._parts)
            if body:
                await self._forward({"type": "http.response.body", "body": body, "more_body": True})
        self._passing = True

    async def _ended(self, status: int, kept: bytes | Unkept) -> bool:
        """Whether the response may be sent now; if not, another was sent in its place."""
        attempt = self._attempt
        assert attempt is not None  # noqa: S101 - only a claimed request is held back
        self._concluded = True  # whatever goes wrong from here on, the work is done
        try:
            if attempt._ended:  # noqa: SLF001 - the handler has said itself how it ended
                pass
            elif self._keeps(status):
                await attempt.complete(kept)
            else:
                uncertain = status in self._rules.profile.uncertain
                await attempt.release(f"answered {status}", uncertain=uncertain)
        except OncekeyError as error:
            await self._reply(self._rules.answers.refusal(error))
            return False
        if attempt.duplicate:  # it was taken over, and the winner's answer stands
            await self._reply(self._rules.replay(attempt.record, self._asked.echo))
            return False
        return True

    def _keeps(self, status: int) -> bool:
        asked_to = self._attempt is not None and bool(self._attempt._keeps)  # noqa: SLF001 - see above
        return self._rules.keeps(status, asked_to=asked_to)

    async def _returned(self) -> None:
        """The application is done; what it left open is closed."""
        attempt = self._attempt
        if attempt is not None and not attempt._ended and not self._concluded:  # noqa: SLF001 - see above
            await attempt.release("no whole response that is kept")
        self._over = True
        self._goes_out()

    async def _failed(self, error: BaseException) -> None:
        attempt = self._attempt
        if attempt is None or attempt._ended or self._concluded:  # noqa: SLF001 - see above
            return
        reply = self._rules.failure() if isinstance(error, Exception) else None
        if reply is None or self._passing:
            await attempt._fail(error)  # noqa: SLF001 - see above
            return
        self._start = {"status": reply.status, "headers": reply.headers}
        if await self._ended(reply.status, packed(reply.status, reply.headers, reply.body)):
            await self._reply(reply)

    # What the client gets

    async def _forward_start(self) -> None:
        assert self._start is not None  # noqa: S101 - the callers have looked
        headers = self._start["headers"]
        sent = {name for name, _ in headers}
        headers = [*headers, *(pair for pair in self._asked.echo if pair[0] not in sent)]
        await self._forward({**self._start, "headers": headers})

    async def _reply(self, reply: Reply) -> None:
        """The client has our answer, and hears nothing more of the application's."""
        await send_reply(self._forward, reply)
        self._deaf = True

    async def _forward(self, message: Message) -> None:
        if not self._deaf:
            await self._to_client(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._over = True
        self._goes_out()

    def _goes_out(self) -> None:
        self._sending = True
        if self._listening is not None:
            self._listening.set()
