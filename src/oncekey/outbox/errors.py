"""The error of a target that does not take a message."""

from __future__ import annotations

from oncekey.errors import OncekeyError


class MessageRefusedError(OncekeyError):
    """The target has not taken the message, and says so: the try counts, and nothing was sent."""
