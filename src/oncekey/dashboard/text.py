"""Turn stored values into text that is safe to show on a page."""

from __future__ import annotations

from typing import Final

import msgspec
from markupsafe import Markup, escape

from oncekey.inspection.text import SECOND, beside, printable

LONG: Final = 20_000


def shown(text: object) -> Markup:
    """Return the escaped text. Characters that cannot be seen are escapes in their own element."""
    words = str(text)
    if words.isprintable():
        return escape(words)
    return Markup("").join(_letter(letter) for letter in words)


def _letter(letter: str) -> Markup:
    if letter.isprintable():
        return escape(letter)
    return Markup('<span class="escape">{}</span>').format(printable(letter))


def lines(text: str) -> Markup:
    """Return the same for text of several lines, cut after `LONG` characters."""
    cut = text[:LONG]
    more = len(text) - len(cut)
    said = Markup("\n").join(shown(line) for line in cut.split("\n"))
    if more:
        said += f"\n... ({more} more characters)"
    return said


def as_json(value: object) -> str:
    """Return the value as indented JSON, or its `repr` if JSON cannot express it."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        return repr(value)


def beside_or_now(at: int, present: int) -> str:
    """Return the time relative to `present`; less than a second away is `just now`."""
    return "just now" if abs(at - present) < SECOND else beside(at, present)


def number(count: float) -> str:
    """Return the number with its thousands separated."""
    return f"{count:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def of_bytes(size: int) -> str:
    """Return a size in bytes or KiB, for people."""
    if size == 1:
        return "1 byte"
    return f"{number(size)} bytes" if size < 1 << 11 else f"{size / 1024:.1f} KiB"
