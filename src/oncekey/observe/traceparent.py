"""Where a record says which trace its run belongs to: at the end of its reference.

The form is the `traceparent` of W3C Trace Context, after a space where the reference says more.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"(?:^| )00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


class Place(NamedTuple):
    """A span among all others."""

    trace: int
    span: int
    flags: int


def with_place(reference: str, place: Place) -> str:
    """The reference, which says from now on where the run is traced."""
    written = f"00-{place.trace:032x}-{place.span:016x}-{place.flags:02x}"
    return f"{reference} {written}" if reference else written


def place_in(reference: str) -> Place | None:
    """Where the run of a record is traced, if it says so."""
    found = _FORM.search(reference)
    if found is None:
        return None
    place = Place(*(int(part, 16) for part in found.groups()))
    return place if place.trace and place.span else None
