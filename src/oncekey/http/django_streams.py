"""Streaming responses of Django: those that end soon are kept, others are not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from itertools import chain
from time import monotonic
from typing import Any, Final

from oncekey.http.django_request import DjangoResponse, answered_headers
from oncekey.http.protocol import Rules
from oncekey.http.reply import Unkept

_HELD_FOR: Final = 1.0
_ENDLESS: Final = Unkept("the response is a stream")
_LARGE: Final = Unkept("the response is larger than max_result")
_SLOW: Final = Unkept("the response takes longer than a second to write")
_END: Final = object()


def hold(rules: Rules, response: DjangoResponse) -> bytes | Unkept:
    """All that the response says, or why it is not waited for. It still says all of it."""
    if rules.endless(answered_headers(response)):
        return _ENDLESS
    left, parts = iter(response), _Parts(rules)
    for part in left:
        unkept = parts.add(part) or (_SLOW if parts.patience() == 0 else None)
        if unkept is not None:
            response.streaming_content = chain(parts.held, left)
            return unkept
    response.streaming_content = parts.held
    return b"".join(parts.held)


async def hold_async(rules: Rules, response: DjangoResponse) -> bytes | Unkept:
    """All that the response says, or why it is not waited for. It still says all of it."""
    if rules.endless(answered_headers(response)):
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

    async def part(self) -> Any:  # noqa: ANN401 - a part, or _END
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
