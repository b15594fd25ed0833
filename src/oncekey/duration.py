"""Durations and sizes as people write them: "100ms", "5min", "24h", seconds, "1MiB"."""

from __future__ import annotations

import re
from datetime import timedelta

from oncekey.errors import ConfigurationError

Duration = str | int | float | timedelta

SECOND = 1_000_000  # stores count whole microseconds
LONGEST = 100 * 366 * 86400.0  # so that every moment can be written as a date

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)\s*")
_SIZES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "KB": 1000, "MB": 1000**2}
_SIZE = re.compile(r"\s*(\d+)\s*(B|KiB|MiB|KB|MB)\s*")


def seconds(value: Duration, name: str, *, zero: bool = False) -> float:
    """The duration in seconds; `zero` says whether none at all is a valid answer."""
    number = _read(value, name)
    if not 0 <= number <= LONGEST or (number == 0 and not zero):
        least = "zero or more" if zero else "more than zero"
        msg = f"{name} must be {least} and at most a hundred years, but it is {value!r}"
        raise ConfigurationError(msg)
    return number


def _read(value: Duration, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match:
            return float(match[1]) * _UNITS[match[2]]
    msg = (
        f'{name} must be a duration such as "100ms", "5s", "5min", "24h" or "7d", '
        f"a number of seconds or a timedelta, but it is {value!r}"
    )
    raise ConfigurationError(msg)


def microseconds(value: float) -> int:
    """Whole microseconds, at least one for anything above zero."""
    return max(1, round(value * SECOND)) if value else 0


def size(value: str | int, name: str) -> int:
    """The size in bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match and int(match[1]):
            return int(match[1]) * _SIZES[match[2]]
    msg = f'{name} must be a number of bytes above zero or a size such as "1MiB", not {value!r}'
    raise ConfigurationError(msg)
