"""Three processes that call, and what they leave in the folder that they share with the test."""

import json
from collections import Counter
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from oncekey import Once
from tests.still import patiently

COLOURS = ("threads", "threads", "tasks")


class Crowd:
    """Workers on one store, and when a server goes away and comes back."""

    def __init__(self, spawn_of, until, folder: Path, server) -> None:
        self._spawn_of, self._until = spawn_of, until
        self.folder, self._server = folder, server
        for file in ("ledger", "troubles"):
            (folder / file).touch()

    def start(self, mode: str, keys: int, outages: int) -> None:
        self.names = [f"{colour}-{number}" for number, colour in enumerate(COLOURS)]
        self._workers = [
            self._spawn_of(
                "tests.faults.worker",
                *(
                    mode,
                    colour,
                    self._server.place,
                    str(self.folder),
                    name,
                    str(keys),
                    str(outages),
                ),
            )
            for colour, name in zip(COLOURS, self.names, strict=True)
        ]

    def until(self, condition) -> None:
        """The condition holds; a worker that failed meanwhile is shown."""

        def checked():
            for worker in self._workers:
                worker.check()
            return condition()

        self._until(checked)

    def until_effects(self, count: int) -> None:
        """So many keys had their effect."""
        self.until(lambda: len(self.effects()) >= count)

    def until_inside(self, outage: int) -> None:
        """Every worker is inside the call that meets this outage."""
        inside = {f"outage:{outage}:{name}" for name in self.names}
        self.until(lambda: inside <= set(self.effects()))

    def effects(self) -> Counter[str]:
        """How often each key had its effect."""
        return Counter(line.split()[0] for line in self._lines("ledger"))

    def ran_unprotected(self) -> list[str]:
        """The keys of the runs that knew themselves that no store protects them."""
        lines = map(str.split, self._lines("ledger"))
        return sorted(key for key, how in lines if how == "unprotected")

    def troubles(self) -> Counter[str]:
        """How often each worker was refused, and how."""
        return Counter(self._lines("troubles"))

    def sign(self, name: str) -> None:
        (self.folder / name).touch()

    def _lines(self, file: str) -> list[str]:
        return (self.folder / file).read_text().splitlines()

    @cached_property
    def said(self) -> list[dict[str, Any]]:
        """What each worker has to say when all its calls are answered."""
        places = [self.folder / f"said.{name}" for name in self.names]
        self.until(lambda: all(place.exists() for place in places))
        return [json.loads(place.read_text()) for place in places]

    def end(self) -> None:
        """Every worker ends, and well."""
        for worker in self._workers:
            worker.output()

    def records(self, keys) -> dict[str, Any]:
        """What the store has under each key."""
        with closing(Once(self._server.url, cache=False)) as once:
            return {key: patiently(once.get, key) for key in keys}

    def statuses(self, keys) -> set[str]:
        """How it stands with the records of these keys."""
        found = self.records(keys).values()
        return {"none" if record is None else record.status for record in found}
