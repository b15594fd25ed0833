"""How a command ends: its exit code, and one sentence when it could not do what was asked."""

from __future__ import annotations

from typing import Final

from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    OncekeyError,
    OutcomeUnknownError,
    StoreError,
)

DONE: Final = 0
NOTHING: Final = 1
"""There is no such record, or it is not in the state that was asked for; nothing was changed."""
WRONG: Final = 2
"""The command line or the settings are wrong, or the store cannot be reached."""
REFUSED: Final = 3
"""The record is running or held, and nobody insisted; nothing was changed."""
STORE: Final = 4
"""The store answered, but not with what was asked for, or holds what cannot be read."""


class CommandError(Exception):
    """The command ends here, with this sentence and this exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        """The sentence goes to the standard error."""
        super().__init__(sentence)
        self.code = code


class NoTablesError(ConfigurationError):
    """The database is there, but has none of our tables, and looking must not make them."""


def code_of(error: OncekeyError) -> int:
    """The exit code for an error of the library."""
    if isinstance(error, (ConfigurationError, InvalidKeyError)):
        return WRONG
    if isinstance(error, StoreError) and error.unreachable:
        return WRONG
    if isinstance(error, (InProgressError, OutcomeUnknownError)):
        return REFUSED
    return STORE
