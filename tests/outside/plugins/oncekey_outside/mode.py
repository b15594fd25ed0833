"""What the command has asked for, what it is told, and the key that a request gets."""

import os
import uuid
from typing import Final

from oncekey import Once
from oncekey.observe import Event
from oncekey.observe.log import LogObserver

BARE: Final = "bare"
WRAPPED: Final = "wrapped"
KEYED: Final = "keyed"

HEADER: Final = "Idempotency-Key"
VARIABLE: Final = "HTTP_IDEMPOTENCY_KEY"
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

MODE: Final = os.environ.get("ONCEKEY_OUTSIDE_MODE", BARE)
STORE: Final = os.environ.get("ONCEKEY_OUTSIDE_STORE", "memory://")
NOTES: Final = os.environ.get("ONCEKEY_OUTSIDE_NOTES", os.devnull)

# Starlette's tests forbid calls that may block in coroutines, and a write to this is none.
_notes = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)


def store() -> Once:
    """Open the store of this run, and note what happens in it."""
    return Once(STORE, observers=[LogObserver(), note_event])


def note_event(event: Event) -> None:
    note(event.name)


def note(name: str) -> None:
    """Tell the command that this has happened. Processes that are forked write to it too."""
    os.write(_notes, f"{name}\n".encode())


def fresh_key() -> str:
    """Make a key that no request had before."""
    return uuid.uuid4().hex
