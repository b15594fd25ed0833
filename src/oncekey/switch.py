"""The off switch: protection can be taken away for a while, in tests above all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class _Switch:
    off = 0


def switched_off() -> bool:
    """Whether somebody has switched protection off in this process."""
    return _Switch.off > 0


def off_in_environment() -> bool:
    """Whether `ONCEKEY_DISABLED` says so."""
    return os.environ.get("ONCEKEY_DISABLED", "").lower() in ("1", "true", "yes", "on")


@contextmanager
def disabled() -> Iterator[None]:
    """Inside, every protected call simply runs, in all threads, and no store hears of it."""
    _Switch.off += 1
    try:
        yield
    finally:
        _Switch.off -= 1
