"""Observers of events, for counting. They are never told about single jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from oncekey.errors import ConfigurationError
from oncekey.events.event import Published
from oncekey.events.log import LogFull

Name = Literal[
    "published",  # appended
    "duplicate",  # was there already
    "differs",  # was there already, with other data; a duplicate as well
    "refused",  # the shard's stream is full
    "trimmed",  # entries that every group has acknowledged were removed from a shard's stream
    "routed",  # the state was moved and the readers woken
    "reclaimed",  # taken from a router that died or hangs
    "dead",  # no router could handle it
    "lost",  # deleted from the stream before a router had it
    "joined",  # a follower of a job has joined
    "left",  # a follower of a job has left
    "resync",  # a reader was told that its place is gone
    "slow",  # a client let too much wait, and its response ended
]


class Happening(Struct, frozen=True, kw_only=True):
    """Something that happened `count` times in a domain. Only a resync has a reason."""

    name: Name
    domain: str
    count: int = 1
    reason: str = ""


class Observer(Protocol):
    """A callable that is told what happens. It must not block; what it raises is only logged.

    A router calls it in several threads.
    """

    def __call__(self, happening: Happening, /) -> None:
        """Take note of it."""
        ...


class EventObservers:
    """The observers of one domain. Falsy if there are none."""

    def __init__(self, domain: str, observers: Iterable[Observer] = ()) -> None:
        """Check that each observer is a callable."""
        self._domain = domain
        if not isinstance(observers, Iterable):
            msg = f"observers must be a list, such as [{observers!r}], not one observer"
            raise ConfigurationError(msg)
        self._all = list(observers)
        for observer in self._all:
            if not callable(observer):
                msg = f"an observer must be a callable that takes one happening, not {observer!r}"
                raise ConfigurationError(msg)

    def __bool__(self) -> bool:
        return bool(self._all)

    def tell(self, name: Name, count: int = 1, reason: str = "") -> None:
        """Call all observers. Log what they raise."""
        if not self._all or not count:
            return
        happening = Happening(name=name, domain=self._domain, count=count, reason=reason)
        for observer in self._all:
            try:
                observer(happening)
            except Exception:
                logging.getLogger("oncekey.events").exception("an observer failed on %s", name)

    def tell_answers(self, answers: Iterable[Published | LogFull]) -> None:
        """Report what became of events that were to be appended."""
        if not self._all:
            return
        taken = [one for one in answers if isinstance(one, Published)]
        duplicates = sum(one.duplicate for one in taken)
        self.tell("published", len(taken) - duplicates)
        self.tell("duplicate", duplicates)
        self.tell("differs", sum(one.differs is True for one in taken))
        self.tell("refused", sum(isinstance(one, LogFull) for one in answers))
