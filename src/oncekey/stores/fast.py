"""Whether a store may put the calls of many callers together, as the user has said."""

from __future__ import annotations

from oncekey.errors import ConfigurationError


def checked_fast(fast: object) -> bool:
    """The same, or refused where it is no truth value."""
    if not isinstance(fast, bool):
        raise ConfigurationError(f"fast must be True or False, not {fast!r}")
    return fast
