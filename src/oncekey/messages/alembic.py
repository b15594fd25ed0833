"""Alembic: keep its autogenerate from dropping the tables that it does not know.

context.configure(..., include_object=include_object)       # in env.py
"""

from __future__ import annotations

from typing import Any, Final

_OURS: Final = (
    "processed_messages",
    "processed_messages_schema",
    "outbox_messages",
    "outbox_messages_schema",
    "outbox_messages_turns",
)
_PREFIX: Final = "oncekey_"


def include_object(
    candidate: Any,
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: FBT001 - as Alembic calls it
    compare_to: Any,
) -> bool:
    """Return False for the tables that an inbox, an outbox or a store has made, as Alembic asks.

    They have migrations of their own. If you have such a function already, call this one in it.
    """
    del candidate, reflected, compare_to
    return type_ != "table" or not (name in _OURS or str(name).startswith(_PREFIX))
