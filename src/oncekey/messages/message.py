"""A message as the inbox sees it, whatever broker it came through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from oncekey.errors import InvalidKeyError


class Message(Struct, kw_only=True):
    """One delivery of a message.

    `id` is the same in every delivery, and empty where the producer has set none. `body` is the
    bytes, or what they were decoded to. `deliveries` counts the broker's deliveries, this one
    included, where the broker does.
    """

    id: str = ""
    type: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    body: Any = b""
    deliveries: int | None = None
    lacks: str = "its id"
    """What of the broker's is missing when there is no id, and how to set it."""
    native: Any = None

    def find(self, path: str) -> Any:  # noqa: ANN401 - whatever the body holds
        """What a dotted path leads to in the body, which may be JSON; KeyError for nothing."""
        value = self._decoded()
        for part in path.split("."):
            if isinstance(value, Mapping):
                value = value[part]
            else:
                try:
                    value = getattr(value, part)
                except AttributeError:
                    raise KeyError(part) from None
        return value

    def _decoded(self) -> Any:  # noqa: ANN401 - as above
        if not isinstance(self.body, (bytes, bytearray, memoryview, str)):
            return self.body
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            msg = (
                "the body of the message is no JSON; decode it, or make the key from something else"
            )
            raise InvalidKeyError(msg) from None
