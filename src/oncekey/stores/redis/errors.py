"""Explain errors of Redis: what is wrong, and whether the verb happened."""

from __future__ import annotations

import re
from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MaxConnectionsError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TimeoutError,  # noqa: A004 - redis-py calls it so, and the built-in one is not raised
    TryAgainError,
)

from oncekey.errors import StoreAccessError, StoreError

CAUGHT: Final = (RedisError, RedisClusterException, OSError)
"""The errors that redis-py may raise for a command."""

_WRONG_PASSWORD: Final = (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
)

# A server that answers with one of these has changed nothing. In the error of a script the word is
# in the middle of the message. A script is refused at its first write or not at all.
_REFUSALS: Final = {
    "READONLY": "is a read-only replica; give the address of its primary",
    "OOM": "is full (maxmemory); give it more memory or shorten ttl",
    "LOADING": "is still loading its data; ask again in a moment",
    "BUSY": "is busy with somebody's long script; ask again, or end it with SCRIPT KILL",
    "MASTERDOWN": "is a replica that has lost its primary; give the address of the primary",
    "CLUSTERDOWN": "is a node of a cluster that is down; see CLUSTER INFO there",
    "MOVED": "is a node of a cluster; pass RedisStore(redis.RedisCluster(...)) instead",
    "ASK": "is a node of a cluster; pass RedisStore(redis.RedisCluster(...)) instead",
    "TRYAGAIN": "is moving this part of the cluster; ask again in a moment",
    "CROSSSLOT": "is a node of a cluster that keeps this key elsewhere",
    "NOREPLICAS": "has too few replicas to accept a write (min-replicas-to-write)",
    "MISCONF": "refuses writes because it cannot save to its disk; see its log",
    "WRONGTYPE": "has something else under this key; choose another prefix",
    "NOSCRIPT": "does not keep the script that it was sent; see its log",
}
_ELSEWHERE: Final = frozenset({"READONLY", "MASTERDOWN", "NOREPLICAS"})
"""What a primary says that was replaced, or that was cut off and will be."""
_FORBIDDEN: Final = {
    "NOPERM": "does not allow this user what oncekey needs; grant @scripting, @string, @keyspace, "
    "@read, @write and the keys of the prefix",
    "NOAUTH": "wants a password; put it into the URL, as in redis://user:password@host:6379/0",
    "WRONGPASS": "refused the user name or the password; correct the URL",
}
# redis-py removes the word where it has a class for it. The first class that matches counts.
_CLASSES: Final[dict[type[Exception], str]] = {
    ReadOnlyError: "READONLY",
    OutOfMemoryError: "OOM",
    BusyLoadingError: "LOADING",
    MasterDownError: "MASTERDOWN",
    ClusterDownError: "CLUSTERDOWN",
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
    ClusterCrossSlotError: "CROSSSLOT",
    NoScriptError: "NOSCRIPT",
    NoPermissionError: "NOPERM",
}
_WORD: Final = re.compile(rf"\b({'|'.join((*_REFUSALS, *_FORBIDDEN))})\b")
_NO_DATABASE: Final = re.compile(r"\bDB index\b")
_NO_PASSWORD: Final = re.compile(r"^Authentication required|^HELLO must be called|\bNOAUTH\b")
_NOT_CONNECTED: Final = re.compile(r"\bconnecting to\b|cannot be connected|^No master found")


def explain(error: Exception, where: str, *, sent_once: bool) -> StoreError:
    """Return the error for the caller.

    `sent_once` is False for a client that retries by itself: if it cannot connect now, or is
    refused, the outcome of its first try is still unknown.
    """
    text = words_of(error)
    word = _word(error, text)
    if word in _FORBIDDEN:
        msg = f"Redis at {where} {_FORBIDDEN[word]}"
        return StoreAccessError(msg, happened=False if sent_once else None)
    if _NO_DATABASE.search(text):
        msg = (
            f"Redis at {where} does not have that database ({text}); give another number in the "
            f"URL, or raise `databases` in its settings"
        )
        return StoreAccessError(msg, happened=False if sent_once else None)
    if word is not None:
        msg = f"Redis at {where} {_REFUSALS[word]}; nothing was changed"
        return StoreError(msg, happened=False)
    if isinstance(error, MaxConnectionsError) or text.startswith("No connection available"):
        msg = f"all connections to Redis at {where} are in use; raise max_connections"
        return StoreError(msg, happened=False)
    if _NOT_CONNECTED.search(text):
        msg = f"Redis at {where} cannot be reached; check that it runs and the address ({text})"
        return StoreError(msg, happened=False if sent_once else None, unreachable=True)
    msg = f"Redis at {where} failed, and nobody knows whether it did what it was told: {text}"
    return StoreError(msg, happened=None, unreachable=isinstance(error, TimeoutError))


def words_of(error: BaseException) -> str:
    """Return what an error of redis-py says, without the settings of all clients of a Sentinel."""
    return str(error).partition(" : <redis.")[0]


def elsewhere(error: BaseException) -> bool:
    """Return whether another server may be the primary now."""
    return isinstance(error, RedisError) and _word(error, str(error)) in _ELSEWHERE


def _word(error: Exception, text: str) -> str | None:
    for kind, word in _CLASSES.items():
        if isinstance(error, kind):
            return word
    if isinstance(error, _WRONG_PASSWORD):
        return "NOAUTH" if _NO_PASSWORD.search(text) else "WRONGPASS"
    found = _WORD.search(text)
    return found[0] if found else None
