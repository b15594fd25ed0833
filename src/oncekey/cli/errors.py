"""The exit codes of the commands, and the errors that end a command with a sentence."""

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
"""The exit code if there is no such record or it is not in the required state.

Also that of `doctor` for a danger, and of `import` for records that differ from those in the file.
"""
WRONG: Final = 2
"""The exit code if the command line or settings are wrong, or the store cannot be reached."""
REFUSED: Final = 3
"""The exit code if the record is running or held and there was no `--force`.

Nothing was changed.
"""
STORE: Final = 4
"""The exit code if the store answered with an error, or a newer release wrote the record.

Also if the output cannot be written.
"""
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it. What was done before stays done."""


class CommandError(Exception):
    """End the command with this sentence on the standard error and this exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class NoTablesError(ConfigurationError):
    """The database has none of our tables, and a command that reads must not make them."""


def code_of(error: OncekeyError) -> int:
    """Return the exit code for an error of the library."""
    if isinstance(error, (ConfigurationError, InvalidKeyError)):
        return WRONG
    if isinstance(error, StoreError) and error.unreachable:
        return WRONG
    if isinstance(error, (InProgressError, OutcomeUnknownError)):
        return REFUSED
    return STORE
