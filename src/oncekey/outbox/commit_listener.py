"""Wake an idle relay when a message is committed to PostgreSQL, instead of at its next look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from oncekey.outbox.statements import CHANNEL

if TYPE_CHECKING:
    from oncekey.stores.postgres.address import Target

_log = logging.getLogger("oncekey.outbox")

_PAUSE: Final = 5.0


class CommitListener:
    """A connection of its own that listens, and is opened again when it breaks."""

    def __init__(self, target: Target, wake: Callable[[], object]) -> None:
        """Take where the database is, and what to call when something was committed."""
        self._target = target
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        self.listening = False
        """Whether a notice would be heard. A relay asks for notices only then."""

    def start(self) -> None:
        """Begin to listen, in a task of the running loop."""
        self._task = asyncio.create_task(self._listen())

    async def aclose(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _listen(self) -> None:
        import psycopg

        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._target.conninfo, **{**self._target.options, "autocommit": True}
                )
                try:
                    await connection.execute(f"LISTEN {CHANNEL}".encode())
                    self.listening = True
                    self._wake()  # it may sleep already, without having asked to be told
                    async for _ in connection.notifies():
                        self._wake()
                finally:
                    self.listening = False
                    with suppress(Exception):  # it may be broken already
                        await connection.close()
            except (psycopg.Error, OSError) as error:
                _log.warning("the relay cannot listen, and looks now and then: %s", error)
            await asyncio.sleep(_PAUSE)
