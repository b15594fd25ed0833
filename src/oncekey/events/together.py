"""Publishers of one event loop share a round trip: one write and one read for many events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from redis.exceptions import NoScriptError, ResponseError

from oncekey.events import redis_replies as replies
from oncekey.events.draft import Ask
from oncekey.events.event import Published
from oncekey.events.place import Full
from oncekey.events.redis_place_async import AsyncRedisPlace
from oncekey.events.settings import Settings
from oncekey.stores.redis_clients import AsyncClients
from oncekey.stores.redis_errors import CAUGHT
from oncekey.stores.redis_line import Words, pack

_MOST: Final = 64
_FLIGHTS: Final = 2
_SMALL: Final = 16 * 1024
"""A larger event travels alone, and holds nobody up."""


class _Passenger(NamedTuple):
    ask: Ask
    answer: asyncio.Future[Published | Full]


class SharedRedisPlace(AsyncRedisPlace):
    """Events in Redis, where single events that are published at once travel together."""

    def __init__(self, clients: AsyncClients, settings: Settings) -> None:
        super().__init__(clients, settings)
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, _Gate] = WeakKeyDictionary()

    async def append(self, asks: Sequence[Ask], /) -> list[Published | Full]:
        """Each is in its log and in its shard's stream, once."""
        cluster = self._clients.settings is None  # whose client knows where each event goes
        if len(asks) != 1 or cluster or len(asks[0].payload) > _SMALL or not self._agreed:
            return await super().append(asks)
        loop = asyncio.get_running_loop()
        gate = self._gates.get(loop)
        if gate is None:
            gate = self._gates[loop] = _Gate()
        passenger = _Passenger(asks[0], loop.create_future())
        gate.waiting.append(passenger)
        if len(gate.flights) < _FLIGHTS:
            flight = asyncio.create_task(self._fly(gate.waiting))
            gate.flights.add(flight)
            flight.add_done_callback(gate.flights.discard)
        return [await passenger.answer]

    async def _fly(self, waiting: deque[_Passenger]) -> None:
        """Nobody who waits is left behind. What breaks a line fails only what was on it."""
        while waiting:
            aboard = [waiting.popleft() for _ in range(min(_MOST, len(waiting)))]
            commands = [replies.publish(one.ask, self._names, self._settings) for one in aboard]
            try:
                answers = await self._exchange(commands)
            except Exception as error:  # noqa: BLE001 - handed to those who published
                answers = [error] * len(aboard)
            for passenger, answer in zip(aboard, answers, strict=True):
                await self._land(passenger, answer)

    async def _land(self, passenger: _Passenger, answer: Any) -> None:  # noqa: ANN401 - a reply
        if isinstance(answer, NoScriptError):
            try:
                [told] = await super().append([passenger.ask])
            except Exception as error:  # noqa: BLE001 - handed to whoever published
                answer = error
            else:
                _tell(passenger, told)
                return
        if isinstance(answer, CAUGHT):
            answer = self._explained(answer)
        if not isinstance(answer, Exception):
            _tell(passenger, replies.published(answer))
        elif not passenger.answer.done():
            passenger.answer.set_exception(answer)

    async def _exchange(self, commands: list[Words]) -> list[Any]:
        """What the server says to each, errors included."""
        answers: list[Any] = []
        async with self._clients.held() as line:
            await line.connection.send_packed_command((b"".join(map(pack, commands)),))
            for _ in commands:
                try:
                    answers.append(await line.connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    answers.append(error)
        return answers


class _Gate:
    """Of one event loop: who waits, and what is under way."""

    def __init__(self) -> None:
        self.waiting: deque[_Passenger] = deque()
        self.flights: set[asyncio.Task[None]] = set()


def _tell(passenger: _Passenger, told: Published | Full) -> None:
    if not passenger.answer.done():  # whoever published may have been cancelled
        passenger.answer.set_result(told)
