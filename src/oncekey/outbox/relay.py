"""The relay for blocking code. It has an event loop of its own while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from oncekey.once import Once
from oncekey.outbox.relay_async import AsyncRelay, RelayEvent, Where
from oncekey.outbox.table import Figures
from oncekey.policy import Duration


class Relay:
    """Sends the messages of an outbox, and marks them when their targets have confirmed them.

    Any number of relays may work on one outbox. A message that a relay had when it died is sent by
    another one when the lease is over.
    """

    def __init__(
        self,
        source: str | Once,
        to: Where | Mapping[str, Where],
        *,
        batch: int = 100,
        lease: Duration = "30s",
        timeout: Duration = "10s",
        max_tries: int = 20,
        on_dead: Literal["block", "skip"] = "block",
        keep: Duration = "1d",
        poll: Duration = "1s",
        observers: Iterable[Callable[[RelayEvent], object]] = (),
    ) -> None:
        """Configure the relay, as `AsyncRelay` does. The first use opens the connections."""
        self._relay = AsyncRelay(
            source,
            to,
            batch=batch,
            lease=lease,
            timeout=timeout,
            max_tries=max_tries,
            on_dead=on_dead,
            keep=keep,
            poll=poll,
            observers=observers,
        )
        self._runner = asyncio.Runner()

    def run(self) -> None:
        """Send messages until `stop` is called. What is under way then is finished first.

        A database or a target that is out of reach is tried again until it is back.
        """
        self._runner.run(self._relay.run())

    def drain(self) -> int:
        """Send what may be sent now. Return how many messages were sent.

        What fails is left for later. For tests, and for a relay that a timer starts.
        """
        return self._runner.run(self._relay.drain())

    def stop(self) -> None:
        """End `run` when what is under way is finished. May be called from any thread."""
        self._relay.stop()

    def figures(self) -> Figures:
        """Return how much waits. The age of the oldest message is what to be alarmed by."""
        return self._relay.table.figures()

    def close(self) -> None:
        """Close the connections, and the event loop."""
        self._runner.run(self._relay.aclose())
        self._runner.close()
