"""Peers of the HTTP benchmark, each in a folder of its own, so that their pins disturb nobody."""

from __future__ import annotations

import os
from typing import Final

from bench.peers import folders
from bench.peers.folders import FOLDER, installed

# With the versions that they ask for themselves.
PEERS: Final = {
    "idemkit": ["idemkit[redis]==1.0.2", "hiredis"],
    "asgi_idempotency_header": ["asgi-idempotency-header[redis]==0.2.0", "hiredis"],
    "idemptx": ["idemptx==0.2.2", "hiredis"],
}
NOT_COMPARED: Final = (
    "django-idempotency-key is not compared: it blocks, so that Django on ASGI gives it a thread "
    "for each request, and its bare application is another one"
)
# What uvicorn runs on in production, for every side alike.
_SERVER: Final = "server"
_WANTED: Final = {**PEERS, _SERVER: ["uvloop>=0.21", "httptools>=0.6"]}


def install() -> None:
    """What can be had is there; the rest is missing, and the report says so."""
    folders.install(_WANTED)


def runs_on() -> str:
    """What uvicorn finds to run on."""
    return "uvloop and httptools" if installed(_SERVER) else "asyncio and h11"


def import_path(side: str) -> str:
    """Where the server of a side looks for its modules, before the environment's own."""
    places = [str(FOLDER / name) for name in (side, _SERVER) if installed(name)]
    return os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
