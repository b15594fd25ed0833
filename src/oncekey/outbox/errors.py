"""The errors of a target that has not confirmed a message."""

from __future__ import annotations

from oncekey.errors import OncekeyError


class NotConfirmedError(OncekeyError):
    """The target may have taken the message or not: the try counts.

    `retry_after` is for how many seconds the target wants to be left alone.
    """

    def __init__(self, message: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class MessageRefusedError(NotConfirmedError):
    """The target has not taken the message, and says so: the try counts, and nothing was sent."""


class UndeliverableError(MessageRefusedError):
    """No later try can deliver the message: it is dead at once."""
