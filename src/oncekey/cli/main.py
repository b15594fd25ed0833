"""The entry point of `oncekey`. It checks that the extra is installed, then runs the program."""

from __future__ import annotations

import os
import sys

from oncekey.cli.errors import WRONG

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command and end the process with its exit code."""
    _open_what_is_closed()
    try:
        # Both are extras: if only the library is installed, print a sentence instead of a
        # traceback.
        from oncekey.cli.program import program
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _NEEDED:
            raise
        sys.stderr.write("oncekey: the command needs typer and rich; pip install 'oncekey[cli]'\n")
        sys.exit(WRONG)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not stop the listing.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # text streams
    program(terminal=sys.stdout.isatty())(prog_name="oncekey")


def _open_what_is_closed() -> None:
    """Lead streams nowhere that the caller has closed, as `>&-` does.

    Python has no stream then, and the next file that is opened would get its number: a store would
    be where the output is written.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
