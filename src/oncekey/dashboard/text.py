"""Whatever is stored, as text that a page can show: seen, and never obeyed."""

from __future__ import annotations

from typing import Final

import msgspec
from markupsafe import Markup, escape

from oncekey.inspection.text import SECOND, beside, printable

LONG: Final = 20_000


def shown(text: object) -> Markup:
    """The text with what cannot be seen written as an escape, in an element that tells it apart."""
    words = str(text)
    if words.isprintable():
        return escape(words)
    return Markup("").join(_letter(letter) for letter in words)


def _letter(letter: str) -> Markup:
    if letter.isprintable():
        return escape(letter)
    return Markup('<span class="escape">{}</span>').format(printable(letter))


def lines(text: str) -> Markup:
    """The same for text that has lines, which stay lines."""
    cut = text[:LONG]
    more = len(text) - len(cut)
    said = Markup("\n").join(shown(line) for line in cut.split("\n"))
    if more:
        said += f"\n... ({more} more characters)"
    return said


def as_json(value: object) -> str:
    """The value as JSON over several lines; what JSON does not know is written as Python does."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        return repr(value)


def beside_or_now(at: int, present: int) -> str:
    """Return where the moment lies; what is less than a second away is now."""
    return "just now" if abs(at - present) < SECOND else beside(at, present)


def number(count: float) -> str:
    """The number with its thousands apart."""
    return f"{count:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def of_bytes(size: int) -> str:
    """A size for people."""
    if size == 1:
        return "1 byte"
    return f"{number(size)} bytes" if size < 1 << 11 else f"{size / 1024:.1f} KiB"
