"""How much is measured: everything that decides how long a run takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Counts of one run. In each round every side makes its calls once."""

    rounds: int
    commits: int
    """New keys of one caller on SQLite, each of which costs two commits."""
    reads: int
    """Duplicates of one caller on SQLite."""
    threads: int
    tasks: int
    each: int
    """New keys of each thread; the tasks share as many."""
    cpu: int
    """Calls whose CPU time is taken together."""
    counted: int
    """New keys, or duplicates, whose commits and statements are counted."""
    duplicates: int
    """Callers that wait for one original at the same time."""
    seconds: float
    """How long that original takes."""
    http_rounds: int
    http_seconds: float
    """How long a server is under load in its turn; below a second there are no peers."""
    http_keys: int
    """Unique keys that one server sees while its memory is watched."""
    fetch: bool
    """Whether function-level peers that are missing are installed."""
    peer_rounds: int
    peer_calls: int
    """Calls of one caller to each peer, and of one task."""
    peer_each: int
    """Calls of each of many tasks."""
    few: int
    """Keys in the smallest of three stores that are compared by how many they hold."""
    many: int
    most: int
    grown: int
    """New keys that each of them gets in a round."""


FULL: Final = Settings(
    rounds=25,
    commits=100,
    reads=1000,
    threads=16,
    tasks=64,
    each=100,
    cpu=1000,
    counted=64,
    duplicates=1000,
    seconds=1.0,
    http_rounds=5,
    http_seconds=1.0,
    http_keys=200_000,
    fetch=True,
    peer_rounds=11,
    peer_calls=100,
    peer_each=4,
    few=1_000,
    many=100_000,
    most=1_000_000,
    grown=200,
)
QUICK: Final = Settings(
    rounds=2,
    commits=4,
    reads=8,
    threads=16,
    tasks=64,
    each=4,
    cpu=16,
    counted=64,
    duplicates=50,
    seconds=0.1,
    http_rounds=2,
    http_seconds=0.02,
    http_keys=400,
    fetch=False,
    peer_rounds=2,
    peer_calls=2,
    peer_each=1,
    few=10,
    many=100,
    most=1_000,
    grown=4,
)
