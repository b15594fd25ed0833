"""The jobs and topics that code which blocks follows: one thread reads them in turn."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from functools import partial
from time import monotonic, sleep
from typing import Final, Protocol

from oncekey.errors import StoreError, UnreadableError
from oncekey.events.bundle import JobsAndTopics
from oncekey.events.cursor import Resync
from oncekey.events.event import ALL_OF_TOPIC, Event, shard_of
from oncekey.events.log import FROM_START, LIMIT, MOST_JOBS, EventLog, Listener, Part, Position
from oncekey.events.observers import EventObservers
from oncekey.events.subscription import PATIENCE

_PAUSE: Final = 1.0
_log = logging.getLogger("oncekey.events")


class Read(Protocol):
    """Reads a part of a job's log."""

    def __call__(self, job: str, saw: Position, limit: int, *, watch: bool) -> Part:
        """Return at most `limit` events after the position."""
        ...


class Tail:
    """The places of a reader in several logs."""

    def __init__(
        self,
        log: EventLog,
        read: Read,
        shards: int,
        observers: EventObservers,
        *,
        names: JobsAndTopics,
        places: dict[str, Position],
    ) -> None:
        """Start at these places, and at the beginning of the other jobs."""
        self._log = log
        self._read = partial(read, limit=LIMIT, watch=True)
        self._shards = shards
        self._observers = observers
        self._names = names
        self._places = places
        self._followed = dict.fromkeys(names.jobs)
        self._due: dict[str, None] = {}
        """The jobs and topics to look at now, in this order."""
        self._waits = False

    def changes(self) -> Generator[tuple[str, Event | Resync], None, None]:
        """Yield what is new of each job, in order, without end.

        Each job has its turn for a page. Whoever is not heard of is looked at every few seconds.
        """
        topics = [topic + ALL_OF_TOPIC for topic in self._names.topics]
        with self._log.listening() as listener:
            for job in self._followed:
                listener.hear(job, shard_of(job, self._shards))
            for name in topics:
                for shard in range(self._shards):
                    listener.hear(name, shard)
            all_due = monotonic()
            while True:
                if monotonic() >= all_due:
                    self._due |= dict.fromkeys([*topics, *self._followed])
                    all_due = monotonic() + PATIENCE
                if self._due:
                    yield from self._look(listener)
                patience = 0.0 if self._due else max(0.0, all_due - monotonic())
                self._due |= dict.fromkeys(listener.wait(patience))

    def _look(self, listener: Listener) -> Iterator[tuple[str, Event | Resync]]:
        """Look at the first that is due. Wait a moment if the store cannot be asked."""
        name = next(iter(self._due))
        try:
            if name.endswith(ALL_OF_TOPIC):
                self._look_at_topics(listener)
                self._waits = False
                del self._due[name]
                return
            part = self._read(name, self._places.get(name, FROM_START))
        except StoreError as error:
            if not self._waits:  # said once, however long it lasts
                _log.warning("a subscription waits for its store: %s", error)
            self._waits = True
            sleep(_PAUSE)
            return
        self._waits = False
        del self._due[name]
        self._places[name] = part.position
        if part.resync is not None:
            self._observers.tell("resync", reason=part.resync.reason)
            yield name, part.resync
        for event in part.events():
            yield name, event
        if part.more:
            self._due[name] = None

    def _look_at_topics(self, listener: Listener) -> None:
        """Follow the jobs that have begun, and no longer those that have run out."""
        living: dict[str, None] = dict.fromkeys(self._names.jobs)
        for topic in self._names.topics:
            shards = range(self._shards)
            jobs = [job for shard in shards for job in self._log.topic(topic, shard)]
            if len(jobs) > MOST_JOBS:
                name = topic + ALL_OF_TOPIC
                msg = f"{name!r} cannot be followed: it has more than {MOST_JOBS} living jobs"
                raise UnreadableError(msg, key=name)
            living |= dict.fromkeys(sorted(jobs))
        for job in self._followed.keys() - living.keys():
            listener.ignore(job, shard_of(job, self._shards))
            self._due.pop(job, None)
        for job in living:
            if job not in self._followed:
                listener.hear(job, shard_of(job, self._shards))
                self._due[job] = None
        self._followed = living
