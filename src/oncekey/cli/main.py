"""The entry point of `oncekey`: it says what is missing, or hands over to the program."""

from __future__ import annotations

import sys

from oncekey.cli.errors import WRONG

_NEEDED = ("typer", "rich")


def main() -> None:
    """The command has run, and the process ends with its exit code."""
    try:
        # Both are extras: somebody who installed only the library is told so in a sentence.
        from oncekey.cli.program import program
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        sys.stderr.write("oncekey: the command line needs more; pip install 'oncekey[cli]'\n")
        sys.exit(WRONG)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a letter must not stop the listing.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # text streams
    program(terminal=sys.stdout.isatty())(prog_name="oncekey")
