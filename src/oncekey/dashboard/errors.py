"""What the dashboard cannot do, as a status and a sentence."""

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
    """The request ends here, with this status and this sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        """The sentence is shown to whoever asked."""
        super().__init__(sentence)
        self.status = status


def status_of(error: OncekeyError) -> int:
    """The status for an error of the library."""
    if isinstance(error, InvalidKeyError):
        return 400
    if isinstance(error, (InProgressError, OutcomeUnknownError)):
        return 409
    if isinstance(error, (StoreError, ConfigurationError)):
        return 503  # the store did not answer, or cannot be opened as it is named
    return 500
