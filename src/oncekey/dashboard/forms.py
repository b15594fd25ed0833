"""The fields of a form that was sent, without a package for it and within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from oncekey.dashboard.trouble import Trouble

if TYPE_CHECKING:
    from starlette.requests import Request

LARGEST: Final = 2 * 1024 * 1024
"""A result by hand may be as large as one that was kept, and its escapes make it larger."""
MOST_FIELDS: Final = 50
_KIND: Final = "application/x-www-form-urlencoded"


async def fields(request: Request) -> dict[str, str]:
    """The fields by name; of several with one name the last."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise Trouble(415, "This page takes the forms of the dashboard and nothing else.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Trouble(413, "That is more than a form of the dashboard holds.")
    try:
        found = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Trouble(400, "The form cannot be read.") from None
    return dict(found)
