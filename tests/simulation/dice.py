"""Numbers that follow from a seed and from nothing else.

`mix` gives the number that belongs to a place (a seed, a node, a message), whatever was drawn
before it: so that leaving one fault out changes no other. `Dice` draws one after the other.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

WHOLE: Final = 1 << 16
"""Chances are counted in parts of this."""

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


def mix(seed: int, place: int, number: int = 0) -> int:
    """64 bits that look like chance."""
    x = (seed * _GOLDEN + place * 0xD1B54A32D192ED03 + number * 0x8CB92BA72F3D8DD7) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class Dice:
    """A stream of draws with a name of its own, so that one more in it shifts no other stream."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, stream: int) -> None:
        self._state = mix(seed, stream, 0x51ED)

    def bits(self) -> int:
        """64 bits."""
        self._state = state = (self._state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        return state ^ (state >> 27)

    def below(self, limit: int) -> int:
        """A number from zero to one below the limit."""
        return (self.bits() >> 8) % limit

    def between(self, least: int, most: int) -> int:
        """A number between both, which may be either."""
        return least + (self.bits() >> 8) % (most - least + 1)

    def one_in(self, limit: int) -> bool:
        """True once in so many draws."""
        return (self.bits() >> 8) % limit == 0

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[(self.bits() >> 8) % len(choices)]
