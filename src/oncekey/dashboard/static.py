"""The files that pages need, from the package, under addresses that change with them."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from oncekey.dashboard.trouble import Trouble

if TYPE_CHECKING:
    from starlette.requests import Request

_KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Static:
    """All files, read once. They hold no secrets: anybody may have them."""

    def __init__(self) -> None:
        """They are read from the package."""
        folder = resources.files("oncekey.dashboard") / "static"
        self._files = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
        joined = b"".join(self._files[name] for name in sorted(self._files))
        self.version: Final = hashlib.sha256(joined).hexdigest()[:12]

    async def answer(self, request: Request) -> Response:
        """The file."""
        name = request.path_params["name"]
        data = self._files.get(name)
        if data is None:
            raise Trouble(404, "There is no such file.")
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "content-type": _KINDS[name.rpartition(".")[2]],
        }
        return Response(data, headers=headers)
