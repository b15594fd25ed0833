"""The case in which a job is watched: its worker publishes again, and its watcher is cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial

from examples.demo.case import PATIENCE, Case, Place
from examples.demo.talk import Exchange, Line
from examples.events.job import DOMAIN, TOTAL, events, work
from examples.tour.step import Fact
from oncekey.events import AsyncBus, Bus, Event, Memory

JOB = "job-1"
CUT = 6
"""After so many events the connection of the watcher breaks."""


def watched(_: Place) -> Iterator[Exchange | Line | Fact]:
    memory = Memory()  # a URL of Redis, in earnest
    bus = Bus(memory, domain=DOMAIN)
    first = events(JOB)[0]
    (kept,) = bus.publish_batch([first])
    yield Line(">", f"publish {first.stage}, step {first.step}: {first.data['text']}")
    yield Line("<", f"accepted, offset {kept.offset}")
    (again,) = bus.publish_batch([first])
    yield Line(">", "the same again: its answer was lost")
    yield Line("<", f"a duplicate of offset {again.offset}, nothing was appended")
    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work, bus, JOB, partial(time.sleep, 0.01))
        seen = asyncio.run(watch(memory, None, CUT))
        yield Line(">", f"watch the job; the connection breaks after {CUT} events")
        yield Line("<", _offsets(seen))
        rest = asyncio.run(watch(memory, seen[-1].id, TOTAL - CUT))
        yield Line(">", f"watch again, after offset {CUT}")
        yield Line("<", _offsets(rest))
        retries = worker.result()
    logged = bus.read(JOB).events
    yield Fact("the retry was told that it is one", (bool(kept), bool(again)) == (True, False))
    yield Fact(f"{retries} more were published twice; the log has {TOTAL}", len(logged) == TOTAL)
    yield Fact("the watcher has each event once and in order", seen + rest == logged)


async def watch(memory: Memory, after: str | None, count: int) -> list[Event]:
    """So many events after the one that was seen last."""
    seen: list[Event] = []
    bus = AsyncBus(memory, domain=DOMAIN)
    async with asyncio.timeout(PATIENCE), aclosing(bus.subscribe(JOB, after=after)) as coming:
        async for event in coming:
            if isinstance(event, Event):
                seen.append(event)
            if len(seen) == count:
                break
    return seen


def _offsets(seen: list[Event]) -> str:
    return f"offsets {' '.join(str(event.offset) for event in seen)}"


WATCHED = Case(
    name="watched",
    title="A job is watched, by somebody who is cut off",
    play=watched,
    why="An event is its job, stage and number: publishing it again adds nothing. Whoever watches "
    "says what it saw last, and gets what came after it.",
    asks=(),
)
