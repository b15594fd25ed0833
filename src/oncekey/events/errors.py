"""The errors of events.

OncekeyError
 ├── InvalidEventError     the event cannot be published as it is; nothing was appended
 └── StoreError
      └── BackpressureError   the shard's stream is full; the event was not appended
"""

from __future__ import annotations

from oncekey.errors import OncekeyError, StoreError


class InvalidEventError(OncekeyError):
    """The event cannot be published as it is; nothing was appended."""

    status_hint = 400


class BackpressureError(StoreError):
    """The routers are too far behind. Publish the same event again later, or all of a batch.

    Of a batch those events were appended whose shards had room; then `happened` is None.
    """

    def __init__(
        self, message: str, *, shard: int = 0, length: int = 0, happened: bool | None = False
    ) -> None:
        super().__init__(message, happened=happened)
        self.shard = shard
        self.length = length


def refused(shard: int, length: int, *, missing: int, of: int) -> BackpressureError:
    """Return the error for events that do not fit into their shards' streams.

    `missing` is how many of those that were published were not appended, and `of` how many these
    were.
    """
    nothing = missing == of
    came = "Nothing was appended" if nothing else f"{missing} of {of} events were not appended"
    again = "the same event" if of == 1 else "all of them"
    msg = (
        f"the stream of shard {shard} has {length} entries that no router has acknowledged; start "
        f"or repair the routers, and publish {again} again. {came}"
    )
    return BackpressureError(msg, shard=shard, length=length, happened=False if nothing else None)


def partly(error: StoreError) -> StoreError:
    """Return the error for a batch of which the server has refused an event, not always the first.

    A server that was not reached has appended none.
    """
    if error.unreachable:
        return error
    why = str(error).removesuffix("; nothing was changed")
    msg = f"some of the events may have been appended; publish all of them again: {why}"
    return StoreError(msg, happened=None)
