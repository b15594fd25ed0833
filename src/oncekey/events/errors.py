"""The errors of events.

OncekeyError
 ├── InvalidEventError     the event cannot be published as it is; nothing was appended
 └── StoreError
      └── BackpressureError   the shard's stream is full; nothing was appended
"""

from __future__ import annotations

from oncekey.errors import OncekeyError, StoreError


class InvalidEventError(OncekeyError):
    """The event cannot be published as it is; nothing was appended."""

    status_hint = 400


class BackpressureError(StoreError):
    """The routers are too far behind; nothing was appended. Publish the same event again later."""

    def __init__(self, message: str, *, shard: int = 0, length: int = 0) -> None:
        super().__init__(message, happened=False)
        self.shard = shard
        self.length = length


def refused(shard: int, length: int) -> BackpressureError:
    """Return the error for an event that does not fit into its shard's stream."""
    msg = (
        f"the stream of shard {shard} has {length} entries that no router has acknowledged; start "
        f"or repair the routers, and publish the same event again. Nothing was appended"
    )
    return BackpressureError(msg, shard=shard, length=length)
