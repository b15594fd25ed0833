"""The ledger: a line for every effect. It prevents nothing, so that what happens twice is counted.

A line is one small append to a file, which outlives the process that wrote it. The order of the
lines is the order in which the effects arrived. From that order follows what a provider that
knows its callers' keys, or one that fences, would have done.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FILE = "ledger"


class Arrival(NamedTuple):
    """An effect, as the provider sees it."""

    key: str
    token: int
    downstream: str
    worker: str
    value: str


class Ledger:
    """Where effects are written down."""

    def __init__(self, folder: str | Path) -> None:
        """The same file for all processes."""
        self.path = Path(folder) / FILE
        self._file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o644)

    def arrive(self, arrival: Arrival) -> None:
        """The effect has happened."""
        os.write(self._file, ("\t".join(map(str, arrival)) + "\n").encode())

    def close(self) -> None:
        """Nothing more is written here."""
        os.close(self._file)

    def find(self, key: str) -> Arrival | None:
        """The first effect of the key: what a provider would answer who asks for it."""
        return next((one for one in arrivals(self.path.parent) if one.key == key), None)


def arrivals(folder: str | Path) -> Iterator[Arrival]:
    """Every effect, in the order of arrival."""
    path = Path(folder) / FILE
    if not path.exists():
        return
    with path.open() as lines:
        for line in lines:
            key, token, downstream, worker, value = line.rstrip("\n").split("\t")
            yield Arrival(key, int(token), downstream, worker, value)


def asked(found: Iterable[Arrival]) -> dict[str, int]:
    """How often each effect was asked for: what a provider without keys would have done."""
    counts: dict[str, int] = defaultdict(int)
    for one in found:
        counts[one.key] += 1
    return counts


def by_key(found: Iterable[Arrival]) -> dict[str, int]:
    """How often each happens at a provider that does a key that it has seen no second time."""
    seen: dict[str, set[str]] = defaultdict(set)
    for one in found:
        seen[one.key].add(one.downstream)
    return {key: len(keys) for key, keys in seen.items()}


def fenced(found: Iterable[Arrival]) -> tuple[dict[str, int], int]:
    """How often each happens at one that refuses an older token, and how many it refuses.

    The same token again is the same attempt; a new attempt asks the provider first whether the
    effect is there, which is what `reconcile` is for, so only what follows a refusal counts.
    """
    newest: dict[str, int] = {}
    counts: dict[str, int] = defaultdict(int)
    refused = 0
    for one in found:
        if one.token < newest.get(one.key, 0):
            refused += 1
            continue
        newest[one.key] = one.token
        counts[one.key] += 1
    return counts, refused
