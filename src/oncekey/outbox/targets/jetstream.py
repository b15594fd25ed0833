"""NATS JetStream: a message is sent when a stream has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from oncekey.extras import needing
from oncekey.outbox.errors import MessageRefusedError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import one_by_one

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

_PATIENCE: Final = 10.0


class JetStream:
    """Sends to subjects of NATS that a stream takes. The id goes with it as `Nats-Msg-Id`.

    The stream drops a second message with an id within its `duplicate_window`, 2 minutes unless it
    was made with another one. Let consumers use an inbox for what comes later.
    """

    def __init__(self, url: str, *, twice: bool = True, **options: Any) -> None:
        """Remember the URL and further options of `nats.connect`. The first message connects.

        A message that a stream took for a duplicate is confirmed, unless `twice` is false: then it
        is refused.
        """
        with needing("nats", "NATS JetStream"):
            import nats  # noqa: F401 - fails here rather than in the relay
        self._url = url
        self._options = options
        self._twice = twice
        self.windows: dict[str, float] = {}
        """For how many seconds each stream that has confirmed a message remembers its id."""
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._waiting: set[asyncio.Task[Any]] = set()

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the messages. Return None for each that a stream has confirmed, or an error."""
        from nats.errors import (
            ConnectionClosedError,
            ConnectionDrainingError,
            NoServersError,
            OutboundBufferLimitError,
            StaleConnectionError,
        )

        gone = (
            ConnectionClosedError,
            ConnectionDrainingError,
            NoServersError,
            OutboundBufferLimitError,
            StaleConnectionError,
        )
        try:
            context = (await self._connected()).jetstream(timeout=deadline - monotonic())
        except Exception as error:
            raise ConnectionError(f"NATS cannot be used: {error!r}") from error

        streams: set[str] = set()

        async def publish(message: OutboxMessage) -> None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine runs in one
            self._waiting.add(task)
            try:
                answer = await context.publish(message.to, message.body, headers=_headers(message))
            except gone as error:
                raise ConnectionError(f"NATS went away: {error!r}") from error
            except asyncio.CancelledError as error:
                if task in self._waiting:
                    raise
                task.uncancel()  # `_closed` has cancelled it: the client lets it wait for ever
                raise ConnectionError("NATS went away before it answered") from error
            finally:
                self._waiting.discard(task)
            streams.add(answer.stream)
            if answer.duplicate and not self._twice:
                msg = (
                    f"the stream still remembers {message.id!r} and took it for a duplicate; send "
                    f"it again when its duplicate_window is over"
                )
                raise MessageRefusedError(msg)

        answers = [_meant(answer) for answer in await one_by_one(publish, messages, deadline)]
        for stream in streams - self.windows.keys():
            self.windows[stream] = await _window(context, stream, deadline - monotonic())
        return answers

    async def aclose(self) -> None:
        """Close the connection. The next message opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connected(self) -> Client:
        import nats

        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                await self.aclose()
                # We connect again ourselves. The client would send what was given up long ago.
                options = {
                    "allow_reconnect": False,
                    "closed_cb": self._closed,
                    "connect_timeout": _PATIENCE,
                    "max_reconnect_attempts": 1,
                    "reconnect_time_wait": 0.1,
                    **self._options,
                }
                self._client = await nats.connect(self._url, **options)
            return self._client

    async def _closed(self) -> None:
        """Wake those who wait for an answer of a connection that is gone."""
        waiting, self._waiting = self._waiting, set()
        for task in waiting:
            task.cancel()


async def _window(context: JetStreamContext, stream: str, patience: float) -> float:
    """Return for how many seconds the stream remembers ids; for ever, if we may not know."""
    try:
        async with asyncio.timeout(patience / 2):
            info = await context.stream_info(stream)
    except Exception:  # noqa: BLE001 - its messages have been sent, and that is what counts
        return inf
    return info.config.duplicate_window or inf


def _headers(message: OutboxMessage) -> dict[str, str]:
    headers = {name: str(value) for name, value in message.attributes.items()}
    if message.type:
        headers.setdefault("type", message.type)
    return {**headers, "Nats-Msg-Id": message.id}


def _meant(error: BaseException | None) -> BaseException | None:
    """Return the error as a relay understands it."""
    from nats.errors import BadSubjectError, MaxPayloadError
    from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

    if isinstance(error, ServiceUnavailableError):  # it has no leader at the moment
        return ConnectionError(f"JetStream is not ready: {error}")
    if isinstance(error, NoStreamResponseError):
        return MessageRefusedError("no stream takes this subject; make one, or put another `to`")
    if isinstance(error, (APIError, BadSubjectError, MaxPayloadError)):
        return MessageRefusedError(f"JetStream refused it: {error}")
    return error
