"""The same for coroutines: the twin of `door.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncekey.errors import StoreError, doubted
from oncekey.events.cursor import Cursor
from oncekey.events.draft import Ask, Draft, check_job, prepare, strictly
from oncekey.events.event import Event, Published, read_event, shard_of
from oncekey.events.observing import Observers
from oncekey.events.place import FIRST, AsyncPlace, Full
from oncekey.events.reading import Page, Position, check_limit, page, position, verdict
from oncekey.events.settings import Settings
from oncekey.events.trouble import refused

LIMIT = 500


class AsyncDoor:
    """A domain's events."""

    def __init__(self, place: AsyncPlace, settings: Settings, observers: Observers) -> None:
        self._place = place
        self._observers = observers
        self.settings = settings

    async def publish(  # noqa: PLR0913 - the parts of an event
        self,
        job: str,
        stage: str,
        data: Any,  # noqa: ANN401 - whatever can be written as JSON
        *,
        seq: int | None = None,
        step: int | None = None,
        strict: bool = False,
    ) -> Published:
        """The event is in the job's log, once, whoever publishes it how often.

        `seq` is its number, or `step` its position in the range of its stage. A duplicate with
        other data leaves the first and says `differs`; with `strict` it raises KeyReusedError.
        """
        asks = [prepare((job, stage, data, seq, step), self.settings)]
        try:
            answers = await self._place.append(asks)
        except StoreError as error:
            answers = await self._appended_again(asks, error)
        return self._made(asks, answers, strict=strict)[0]

    async def publish_batch(
        self, drafts: Iterable[Draft], *, strict: bool = False
    ) -> list[Published]:
        """All of them, in their order, in one round trip. After an error publish all again."""
        asks = [prepare(Draft(*draft), self.settings) for draft in drafts]
        if not asks:
            return []
        try:
            answers = await self._place.append(asks)
        except StoreError as error:
            answers = await self._appended_again(asks, error)
        return self._made(asks, answers, strict=strict)

    async def read(
        self,
        job: str,
        *,
        after: Cursor | str | None = None,
        last_seq: int | None = None,
        limit: int = LIMIT,
    ) -> Page:
        """The events of a job after the one that the reader saw last; without one, from the start.

        `after` is an event's cursor or its text, `last_seq` its number; 0 is the start.
        """
        saw = position(after, last_seq)
        found = await self._read(check_job(job), saw, check_limit(limit))
        if found.resync is not None:
            self._observers.tell("resync", reason=found.resync.reason)
        return found

    async def state(self, job: str) -> Event | None:
        """The event with the greatest seq, if the job has had one lately."""
        shard = shard_of(check_job(job), self.settings.shards)
        kept = await self._place.state(job, shard)
        return None if kept is None else read_event(kept.payload, kept.cursor)

    async def _appended_again(self, asks: list[Ask], error: StoreError) -> list[Published | Full]:
        """The marks are the same, so an event that is there already is known as ours."""
        if error.happened is False:
            raise error
        try:
            return await self._place.append(asks)
        except StoreError as again:
            raise doubted(again) from again

    def _made(
        self, asks: list[Ask], answers: list[Published | Full], *, strict: bool
    ) -> list[Published]:
        self._observers.tell_answers(answers)
        made: list[Published] = []
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, Full):
                raise refused(ask.shard, answer.length)
            made.append(strictly(answer, ask, self.settings.domain) if strict else answer)
        return made

    async def _read(self, job: str, saw: Position, limit: int = LIMIT) -> Page:
        shard = shard_of(job, self.settings.shards)
        look = await self._place.look(job, shard, saw.start, limit)
        reason = verdict(saw, look)
        if reason is not None:
            look = await self._place.look(job, shard, FIRST, limit)
        return page(job, saw, look, reason)
