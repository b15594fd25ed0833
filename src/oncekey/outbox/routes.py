"""Names of destinations, and patterns of them: `orders.paid`, `orders.*`, `*`."""

from __future__ import annotations

from collections.abc import Iterable

from oncekey.errors import ConfigurationError


def checked_patterns(patterns: object) -> tuple[str, ...]:
    """Return the patterns. Raise ConfigurationError if one is not a name or a start with `*`."""
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        msg = f"destinations are given as a list of names or patterns, not as {patterns!r}"
        raise ConfigurationError(msg)
    found = tuple(patterns)
    for one in found:
        if not isinstance(one, str) or not one or "*" in one[:-1]:
            msg = (
                f"a destination is a name, or the start of names with * at its end, as in "
                f"'orders.*', not {one!r}"
            )
            raise ConfigurationError(msg)
    return found


def matches(pattern: str, destination: str) -> bool:
    """Return whether the destination is what the pattern names."""
    if pattern.endswith("*"):
        return destination.startswith(pattern[:-1])
    return destination == pattern


def have_in_common(one: str, other: str) -> bool:
    """Return whether there are destinations that both patterns name."""
    return matches(one, other.removesuffix("*")) or matches(other, one.removesuffix("*"))
