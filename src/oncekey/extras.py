"""Packages that only some users need: who lacks one is told in one sentence what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oncekey.errors import ConfigurationError


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Imports in the block are of the extra; `what` is of no use without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "oncekey":  # a mistake of ours, not of the user
            raise
        msg = f"{what} needs the package {error.name!r}; pip install 'oncekey[{extra}]'"
        raise ConfigurationError(msg) from None
