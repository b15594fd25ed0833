"""What need not be found out again about a function that is run by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from oncekey.arguments import Arguments
from oncekey.core.codec import Codec, codec_of


class Known(NamedTuple):
    """How its arguments are named and its results kept."""

    arguments: Arguments
    codec: Codec


_known: Final[WeakKeyDictionary[Callable[..., Any], Known]] = WeakKeyDictionary()


def known_of(function: Callable[..., Any]) -> Known:
    """What is known about the function, found out at its first use."""
    try:
        known = _known.get(function)
    except TypeError:  # it cannot be remembered: no hash, or no weak reference
        return Known(Arguments(function), codec_of(function))
    if known is None:
        known = Known(Arguments(function), codec_of(function))
        _known[function] = known
    return known
