"""Turn the ImportError of a missing optional package into one sentence on what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oncekey.errors import ConfigurationError


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import packages of an extra in this block. Raise ConfigurationError if one is missing.

    `what` is the name of what needs the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "oncekey":  # our own mistake, not the user's
            raise
        msg = f"{what} needs the package {error.name!r}; pip install 'oncekey[{extra}]'"
        raise ConfigurationError(msg) from None
