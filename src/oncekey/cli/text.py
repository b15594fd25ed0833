"""Text that cannot do anything to a terminal, and values as text."""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from typing import Any, Final

SHORT: Final = 200
LONG: Final = 2000


def printable(text: str) -> str:
    """The text on one line; what a terminal would obey or hide is written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} ... ({len(text) - most} more characters)"


def as_text(value: object, most: int) -> str:
    """The value as JSON on one line, for people: shortened, in the letters of its language."""
    return shortened(printable(json.dumps(plain(value), ensure_ascii=False)), most)


def plain(value: object) -> Any:  # noqa: ANN401 - whatever JSON knows
    """The value as JSON can say it; what JSON does not know becomes text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k if isinstance(k, str) else str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else repr(value)
