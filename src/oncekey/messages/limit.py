"""How often a broker delivers a message again before it gives the message up."""

from __future__ import annotations

import logging

from msgspec import Struct

_log = logging.getLogger("oncekey")


class DeliveryLimit(Struct, frozen=True):
    """The limit of redeliveries that a broker has for the messages of one queue or stream."""

    place: str
    """The name of the queue, stream or subject."""
    redeliveries: int
    """How often a message is delivered again at most."""
    hold: float
    """For how many seconds each of them is held here while the message is in progress elsewhere."""

    @property
    def patience(self) -> float:
        """The seconds from the death of a consumer until its message is given up."""
        return self.redeliveries * self.hold if self.redeliveries else 0.0


def warn_of_limit(limit: DeliveryLimit, lease: float) -> None:
    """Log a warning if the broker gives a message up before the lease of a dead consumer is over.

    The lease is in seconds.
    """
    if limit.patience < lease:
        _log.warning(
            "the broker delivers a message of %s again %d times, so that one whose consumer has "
            "died is given up %.0f s later, before its lease of %.0f s is over: raise the limit "
            "(x-delivery-limit, max_deliver), or choose a shorter lease",
            limit.place or "a subscriber",
            limit.redeliveries,
            limit.patience,
            lease,
        )
