"""Steps through the keys of a Redis server, or of the nodes of a cluster one after the other."""

from __future__ import annotations

from hashlib import sha1
from typing import Any, Final, NamedTuple

from oncekey.core.key import stored_key
from oncekey.looking.ask import Look, bad_cursor, whole_number
from oncekey.looking.redis_records import status_in
from oncekey.stores.redis import commands as codec

# One script for many keys, because a command for each would cost the driver ten times as much.
# The keys are no KEYS: those of one node of a cluster belong to many slots.
_READ: Final = """
local clock = redis.call('TIME')
local told, SIZE = {clock[1] * 1000000 + clock[2]}, 95
for number, name in ipairs(ARGV) do
  local head = redis.pcall('GETRANGE', name, 0, SIZE - 1)
  if type(head) == 'string' and #head == SIZE then
    local a, b, c, d, e, f = struct.unpack('>I2I2I2I2I4I4', head, SIZE - 15)
    local before = SIZE + a + b + c + d + e + f
    told[number + 1] = {
      redis.call('GETRANGE', name, 0, before - 1), redis.call('STRLEN', name) - before,
    }
  else
    told[number + 1] = type(head) == 'string' and {head, 0}
  end
end
return told
"""
_HEADS: Final = """
local told = {}
for number, name in ipairs(ARGV) do
  local start = redis.pcall('GETRANGE', name, 0, 5)
  told[number] = type(start) == 'string' and start
end
return told
"""


class Step(NamedTuple):
    """Where a page starts: the node, the cursor of its SCAN, and what was told of that step.

    A step hands out more keys than a page may have: they are told in the order of their digests.
    """

    node: int = 0
    cursor: int = 0
    told: str = ""

    @classmethod
    def of(cls, after: str | None) -> Step:
        """The step that a cursor names."""
        if after is None:
            return cls()
        try:
            node, cursor, told = after.split(".")
            return cls(whole_number(node), whole_number(cursor, 2**64), told)
        except ValueError:
            raise bad_cursor(after) from None

    def following(self, cursor: int, nodes: int) -> Step | None:
        """The step after this one, which SCAN has answered with this cursor; None at the end."""
        if cursor:
            return Step(self.node, cursor)
        return Step(self.node + 1) if self.node + 1 < nodes else None

    def __str__(self) -> str:
        return f"{self.node}.{self.cursor}.{self.told}"


def nodes_of(client: Any) -> list[Any]:  # noqa: ANN401 - Redis or RedisCluster
    """The clients of all servers that have keys of their own, in an order that stays."""
    if not hasattr(client, "get_primaries"):
        return [client]
    primaries = sorted(client.get_primaries(), key=lambda node: str(node.name))
    return [client.get_redis_connection(node) for node in primaries]


def digest_of(name: bytes) -> str:
    """What stands for the key in a cursor, which may be shown where keys may not."""
    return sha1(name, usedforsecurity=False).hexdigest()[:16]


def pattern_of(prefix: bytes, ask: Look) -> bytes:
    """What SCAN has to match, as far as the server can tell what was asked for."""
    if ask.any_scope:
        return codec.pattern_of(prefix)
    return codec.pattern_of(prefix + stored_key(ask.scope, ask.prefix).encode())


def step(node: Any, cursor: int, count: int, pattern: bytes | None) -> tuple[int, list[bytes]]:  # noqa: ANN401 - a client of redis-py
    """One step of SCAN: where the next one starts, 0 after the last, and the keys of this one."""
    following, names = node.scan(cursor, match=pattern, count=count, NEVER_DECODE=True)
    return following, list(dict.fromkeys(names))


def read(node: Any, names: list[bytes]) -> tuple[int, list[Any]]:  # noqa: ANN401 - a client of redis-py
    """The time, and of each key what stands before its result, and its size; None: no string."""
    if not names:
        return time_of(node), []
    now, *replies = node.execute_command("EVAL", _READ, 0, *names, NEVER_DECODE=True)
    return now, replies


def time_of(node: Any) -> int:  # noqa: ANN401 - a client of redis-py
    """The time of the server."""
    second, micro = node.time()
    return int(second * 1_000_000 + micro)


def read_statuses(node: Any, names: list[bytes]) -> list[str | None]:  # noqa: ANN401 - a client of redis-py
    """The status under each key; None for what is no record."""
    if not names:
        return []
    heads = node.execute_command("EVAL", _HEADS, 0, *names, NEVER_DECODE=True)
    return [None if head is None else status_in(head) for head in heads]


def read_one(node: Any, name: bytes) -> bytes | None:  # noqa: ANN401 - Redis or RedisCluster
    """What is stored under one key."""
    stored: bytes | None = node.execute_command("GET", name, NEVER_DECODE=True)
    return stored
