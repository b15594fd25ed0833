"""Scope and key as one text, `scope/key`, for people to read and to type."""

from __future__ import annotations

from urllib.parse import unquote

from oncekey.core.key import stored_key

Place = tuple[str | None, str]


def place_of(stored: str) -> Place | None:
    """Scope and key of a text that `stored_key` made; None for any other text."""
    scope, slash, key = stored.rpartition("/")
    if not key or (slash and not scope):
        return None
    place = unquote(scope) or None, unquote(key)
    return place if stored_key(*place) == stored else None
