"""Errors that become a page with an HTTP status and a sentence."""

from __future__ import annotations

from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    OncekeyError,
    OutcomeUnknownError,
    StoreError,
)


class PageError(Exception):
    """End the request with this status and a page that shows this sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def status_of(error: OncekeyError) -> int:
    """Return the HTTP status for an error of the library."""
    if isinstance(error, InvalidKeyError):
        return 400
    if isinstance(error, (InProgressError, OutcomeUnknownError)):
        return 409
    if isinstance(error, (StoreError, ConfigurationError)):
        return 503  # the store did not answer, or its URL cannot be opened
    return 500
