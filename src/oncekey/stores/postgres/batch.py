"""Batches: claims and settles of the tasks of one event loop share a statement and a commit.

Their values are sent as arrays in PostgreSQL's binary format.
"""

from __future__ import annotations

from collections.abc import Awaitable
from struct import Struct
from typing import Final

from oncekey.stores.crowd import LARGE, Crowd
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.pool_async import AsyncLink
from oncekey.stores.postgres.protocol import Statement, Values

_HEAD: Final = Struct(">5i")
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_KINDS: Final = {"text": 25, "bigint": 20, "boolean": 16, "bytea": 17}
_SHORT: Final = tuple(_LENGTH.pack(length) for length in range(256))
"""The encoded form of most lengths."""


def array(kind: str, values: tuple[bytes | None, ...]) -> bytes:
    """Encode an array of one dimension."""
    first, count = values[0], len(values)
    head = _HEAD.pack(1, None in values, _KINDS[kind], count, 1)
    if values.count(first) == count:  # in most columns all values are the same
        return head + _element(first) * count
    return head + b"".join([_element(value) for value in values])


def _element(value: bytes | None) -> bytes:
    if value is None:
        return _NULL
    length = len(value)
    return (_SHORT[length] if length < len(_SHORT) else _LENGTH.pack(length)) + value


class AsyncCrowd:
    """Run statements, for any number of tasks of one loop."""

    def __init__(self, target: Target) -> None:
        """Start without connections. Without `fast` there are no batches."""
        self._link = AsyncLink(target)
        self._crowds = {
            alone.name: _crowd(self._link, alone, together)
            for alone, together in (sql.CROWDS if target.fast else ())
        }

    async def run(self, statement: Statement, values: Values) -> list[bytes]:
        """Run one prepared statement in a transaction of its own. Return its column."""
        crowd = self._crowds.get(statement.name)
        if crowd is None or len(b"".join(filter(None, values))) > LARGE:
            return await self._link.run(statement, values)
        return await crowd.run(values)

    async def close(self) -> None:
        """Close our connections, those in use when they are given back."""
        await self._link.close()


def _crowd(link: AsyncLink, alone: Statement, together: Statement) -> Crowd[Values, bytes]:
    def run_together(batch: list[Values]) -> Awaitable[list[bytes]]:
        columns = zip(*batch, strict=True)
        kinds = together.kinds
        return link.run(together, [array(*one) for one in zip(kinds, columns, strict=True)])

    return Crowd("PostgreSQL", _record_of, lambda values: link.run(alone, values), run_together)


def _record_of(values: Values) -> tuple[object, ...]:
    return tuple(values[:2])
