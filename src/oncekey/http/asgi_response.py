"""The response of one covered request of ASGI: held back until it is recorded, then sent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from oncekey.attempt import AsyncAttempt
from oncekey.errors import OncekeyError
from oncekey.http.asgi_messages import Message, Receive, Send, lowered, send_reply
from oncekey.http.protocol import Rules
from oncekey.http.reply import Reply, Unkept, packed
from oncekey.http.request import Headers

_HELD_FOR: Final = 1.0


class Response:
    """What the application reads and answers.

    Little happens to most requests: what holds until it happens stands in the class.
    """

    _attempt: AsyncAttempt | None = None
    _message: Message | None = None  # the body, if it came in one piece
    _messages: Iterator[Message] | None = None  # the body, if it did not
    _sending = False
    _listening: asyncio.Event | None = None  # told when the response goes out
    _timer: asyncio.Task[None] | None = None
    _changing: asyncio.Lock | None = None  # there is one where there is a timer
    _echo: Headers  # the key, if it is sent back
    _start: Message
    _headers: Headers  # those of the start, in lower case
    _parts: list[bytes] | None = None
    _held = 0
    _answer: Reply | None = None
    _passing = False
    _concluded = False
    _over = False
    _deaf = False

    def __init__(self, rules: Rules, receive: Receive, send: Send) -> None:
        """Nothing has been read, and nothing answered."""
        self._rules = rules
        self._from_client = receive
        self._to_client = send

    def detach(self) -> None:
        """Nobody waits for the response any more."""
        self._deaf = True

    # What the application reads

    async def receive(self) -> Message:
        """The body, piece by piece; then nothing, until the response goes out.

        A client that leaves before cannot stop the work; a stream may end with its client.
        """
        message, self._message = self._message, None
        if message is None and self._messages is not None:
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

    def send(self, message: Message) -> Coroutine[Any, Any, None]:
        """The response goes to the client when it is recorded how the request ended."""
        if self._changing is None or self._passing:
            return self._send(message)
        return self._send_in_turn(message, self._changing)

    async def _send_in_turn(self, message: Message, changing: asyncio.Lock) -> None:
        async with changing:
            await self._send(message)

    async def _send(self, message: Message) -> None:
        if self._answer is not None:
            return  # whatever the framework makes of AnsweredError is not the answer
        kind = message["type"]
        if self._attempt is None or self._passing:
            await self._forward(message)
        elif kind == "http.response.start":
            self._start, self._headers = message, lowered(message.get("headers", ()))
            if self._rules.endless(self._headers):
                await self._let_through("the response is a stream")
        elif kind != "http.response.body":
            await self._forward(message)
        elif message.get("more_body", False):
            await self._hold(message.get("body", b""))
        else:  # the whole response is here: it is recorded, then sent
            body = message.get("body", b"")
            if self._parts is not None:
                body = b"".join([*self._parts, body])
                message = {"type": "http.response.body", "body": body}
            if await self._ended(self._rules.kept(self._start["status"], self._headers, body)):
                await self._forward(self._started())
                await self._forward(message)
            self._passing = True

    async def _hold(self, part: bytes) -> None:
        if self._parts is None:
            self._parts = []
        self._parts.append(part)
        self._held += len(part)
        if self._held > self._rules.terms.max_result:
            await self._let_through("the response is larger than max_result")
        elif self._timer is None:
            self._changing = asyncio.Lock()
            self._timer = asyncio.create_task(self._lose_patience(self._changing))

    async def _lose_patience(self, changing: asyncio.Lock) -> None:
        await asyncio.sleep(_HELD_FOR)
        async with changing:
            if not self._passing:
                await self._let_through("the response takes longer than a second to write")

    async def _let_through(self, why: str) -> None:
        """The response is not waited for: it is recorded as not replayable, then sent."""
        if not self._keeps(self._start["status"]) or await self._ended(Unkept(why)):
            await self._forward(self._started())
            body = b"".join(self._parts or ())
            if body:
                await self._forward({"type": "http.response.body", "body": body, "more_body": True})
        self._passing = True

    async def _ended(self, kept: bytes | Unkept) -> bool:
        """Whether the response may be sent now; if not, another was sent in its place."""
        attempt, status = self._attempt, self._start["status"]
        assert attempt is not None  # noqa: S101 - only a claimed request is held back
        self._concluded = True  # whatever goes wrong from here on, the work is done
        try:
            if attempt._ended:  # noqa: SLF001 - the handler has said itself how it ended
                pass
            elif self._keeps(status):
                ask = attempt._settling(kept)  # noqa: SLF001 - see above
                told = await attempt._engine.settle(attempt._ticket, ask)  # noqa: SLF001 - see above
                attempt._settled(kept, told)  # noqa: SLF001 - see above
            else:
                uncertain = status in self._rules.profile.uncertain
                await attempt.release(f"answered {status}", uncertain=uncertain)
        except OncekeyError as error:
            await self._reply(self._rules.answers.refusal(error))
            return False
        if attempt.duplicate:  # it was taken over, and the winner's answer stands
            await self._reply(self._rules.replay(attempt.record, self._echo))
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
        self._over = self._sending = True
        if self._listening is not None:
            self._listening.set()

    async def _failed(self, error: BaseException) -> None:
        attempt = self._attempt
        if attempt is None or attempt._ended or self._concluded:  # noqa: SLF001 - see above
            return
        reply = self._rules.failure() if isinstance(error, Exception) else None
        if reply is None or self._passing:
            await attempt._fail(error)  # noqa: SLF001 - see above
            return
        self._start = {"status": reply.status}
        if await self._ended(packed(reply.status, reply.headers, reply.body)):
            await self._reply(reply)

    # What the client gets

    def _started(self) -> Message:
        """The start of the response, with the key where it is sent back."""
        headers = self._headers
        for pair in self._echo:
            if pair[0] not in dict(headers):
                headers.append(pair)
        return {**self._start, "headers": headers}

    async def _reply(self, reply: Reply) -> None:
        """The client has our answer, and hears nothing more of the application's."""
        await send_reply(self._forward, reply)
        self._deaf = True

    async def _forward(self, message: Message) -> None:
        if not self._deaf:
            await self._to_client(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._over = True
        self._sending = True
        if self._listening is not None:
            self._listening.set()
