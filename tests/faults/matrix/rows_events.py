"""Rows about events: publishers that repeat, routers that die, watchers that hear nothing."""

import asyncio
import random
import signal
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from oncekey.events import AsyncBus, BackpressureError, Bus, Event, Resync, Router, Stages
from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.crowd import Herd
from tests.faults.matrix.events_worker import DOMAIN
from tests.faults.matrix.lab import Lab, Result
from tests.faults.matrix.verdict import Figures
from tests.patience import PATIENCE

STAGES = Stages({"work": (1, 99_999)})


class Routers:
    """Routers in processes of their own."""

    def __init__(self, herd: Herd, folder: Path, url: str) -> None:
        self._herd, self._folder, self._url = herd, folder, url
        self.kills = 0

    def start(self, name: str) -> None:
        facts = {
            "name": name,
            "folder": str(self._folder),
            "url": self._url,
            "claim_after": "200ms",
        }
        self._herd.order(router=facts)

    def send(self, name: str, number: signal.Signals) -> None:
        self._herd.order(name=name, signal=int(number))

    def kill(self, name: str) -> None:
        """It is killed, and another one takes its place."""
        self.send(name, signal.SIGKILL)
        self.await_end(name, -signal.SIGKILL)
        self.kills += 1
        self.start(name)

    def await_end(self, name: str, code: int) -> None:
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            fact = self._herd.said(0.05)
            if fact is not None and fact.get("ended") == name:
                if fact["code"] != code:
                    raise AssertionError(f"router {name} ended with {fact['code']}, not {code}")
                return
        raise AssertionError(f"router {name} never ended")


async def watch(
    bus: AsyncBus, job: str, count: int, dice: random.Random, *, cuts: bool
) -> list[int]:
    """All events of the job as a watcher gets them that leaves and comes back again and again."""
    found: list[int] = []
    after: str | None = None
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            stay = dice.randrange(1, 20) if cuts else count
            async with aclosing(bus.subscribe(job, after=after)) as events:
                async for event in events:
                    if isinstance(event, Resync):
                        raise AssertionError(f"a resync without cause: {event}")  # noqa: TRY004 - a finding
                    found.append(event.seq)
                    after = event.id
                    stay -= 1
                    if not stay or len(found) == count:
                        break
    return found


Trouble = Callable[..., None]
"""Called with the number of the round, the routers and the place."""


def _events(trouble: Trouble, *, cuts: bool = False) -> Cell:
    """One job after the other is worked on by a publisher that sends 30 % twice."""

    def run(lab: Lab, store: str) -> Result:
        place = lab.places.get(store)
        url = place.fresh()
        routers = Routers(lab.herd, lab.folder(), url)
        jobs, each = (8, 40) if lab.small else (40, 500)
        told = partial(trouble, routers=routers, place=place)
        figures = asyncio.run(_publish(url, routers, (jobs, each), told, cuts=cuts))
        with place.redis.client() as client:
            streams = client.keys(f"{{{DOMAIN}:*}}:events")
            figures.lost += sum(client.xpending(name, "router")["pending"] for name in streams)
            figures.doubled += max(0, sum(map(client.xlen, streams)) - jobs * each)
        return Result(
            figures=figures,
            passed=figures.clean,
            promise="each event once and in order; none lost",
            notes={"routers killed": routers.kills, "events": jobs * each},
        )

    return run


async def _publish(
    url: str,
    routers: Routers,
    size: tuple[int, int],
    trouble: Callable[[int], None],
    *,
    cuts: bool,
) -> Figures:
    jobs, each = size
    dice = random.Random(16)  # noqa: S311 - no secret
    names = [f"job-{number}" for number in range(jobs)]
    figures = Figures(keys=jobs)
    for name in ("steady", "victim"):
        routers.start(name)
    async with (
        AsyncBus(url, domain=DOMAIN, stages=STAGES) as bus,
        AsyncBus(url, domain=DOMAIN, stages=STAGES) as watcher,
    ):
        watching = [
            asyncio.create_task(watch(watcher, job, each, random.Random(job), cuts=cuts))  # noqa: S311 - no secret
            for job in names
        ]
        for number in range(1, each + 1):
            for job in names:
                figures.operations += 1
                if not await bus.publish(job, "work", number, seq=number):
                    figures.lost += 1
                if dice.random() < 0.3:
                    figures.operations += 1
                    figures.doubled += bool(await bus.publish(job, "work", number, seq=number))
            await asyncio.to_thread(trouble, number)
        routers.send("steady", signal.SIGCONT)
        for found in await asyncio.gather(*watching):
            figures.mismatched += found != list(range(1, each + 1))
        for name in ("steady", "victim"):
            routers.send(name, signal.SIGTERM)
            await asyncio.to_thread(routers.await_end, name, 0)
        await asyncio.to_thread(_step, url)
        for job in names:
            state = await bus.state(job)
            figures.stuck += state is None or state.seq != each
    figures.kills = routers.kills
    return figures


def _step(url: str) -> None:
    router = Router(url, domain=DOMAIN, claim_after="1ms")
    router.step()
    router.close()


def _nothing(number: int, routers: Routers, place: Any) -> None:
    """Only the publisher repeats itself."""


def _kills(number: int, routers: Routers, place: Any) -> None:
    if number % 25 == 0:
        routers.kill("victim")
    if number % 20 == 5:
        routers.send("steady", signal.SIGSTOP)
    elif number % 20 == 15:
        routers.send("steady", signal.SIGCONT)


def _deaf(number: int, routers: Routers, place: Any) -> None:
    """Nobody is woken: the connections that wait for a nudge are cut."""
    if number % 3 == 0:
        with place.redis.client() as client:
            client.client_kill_filter(_type="pubsub")


cell("F16", "publishers send 30 % twice", ("redis",), surface="events", mode="once")(
    _events(_nothing)
)
cell("F17", "routers are killed and stand still", ("redis",), surface="events", mode="once")(
    _events(_kills)
)
cell("F18", "watchers are not woken", ("redis",), surface="events", mode="once")(_events(_deaf))
cell("F19", "watchers leave and come back", ("redis",), surface="events", mode="once")(
    _events(_kills, cuts=True)
)


@cell("F20", "a watcher is slower than the publisher", ("redis",), surface="events", mode="once")
def slow(lab: Lab, store: str) -> Result:
    """F20: it gets everything, late; nothing is dropped without a word."""
    url = lab.places.get(store).fresh()
    count = 150 if lab.small else 800

    async def run() -> list[Event | Resync]:
        async with (
            AsyncBus(url, domain=DOMAIN, stages=STAGES, log_length=100) as bus,
            AsyncBus(url, domain=DOMAIN, stages=STAGES, log_length=100) as watcher,
        ):
            found: list[Event | Resync] = []

            async def look() -> None:
                async with aclosing(watcher.subscribe("job")) as events:
                    async for event in events:
                        found.append(event)
                        await asyncio.sleep(0.004)
                        if isinstance(event, Event) and event.seq == count:
                            return

            looking = asyncio.create_task(look())
            for number in range(1, count + 1):
                await bus.publish("job", "work", number, seq=number)
            await asyncio.to_thread(_step, url)
            async with asyncio.timeout(PATIENCE):
                await looking
            return found

    found = asyncio.run(run())
    silent, before = 0, 0
    for one in found:
        if isinstance(one, Resync):
            before = -1  # it was told
            continue
        silent += before >= 0 and one.seq != before + 1
        before = one.seq
    told = sum(isinstance(one, Resync) for one in found)
    figures = Figures(keys=1, operations=count, lost=silent)
    return Result(
        figures=figures,
        passed=not silent,
        promise="everything, or a resync that says so; never a silent gap",
        notes={"resyncs": told, "seen": len(found) - told, "published": count},
    )


@cell(
    "F21", "streams are trimmed while a consumer is dead", ("redis",), surface="events", mode="once"
)
def trimmed(lab: Lab, store: str) -> Result:
    """F21: what nobody has acknowledged stays; publishers are told when there is no room."""
    place = lab.places.get(store)
    url = place.fresh()
    options: Any = {"stages": STAGES, "length": 100, "most": 1000, "shards": 1}
    refused = 0
    with Bus(url, domain=DOMAIN, **options) as bus, place.redis.client() as client:
        stream = f"{{{DOMAIN}:0}}:events"
        bus.publish("job", "work", 0, seq=1)
        client.xgroup_create(stream, "audit", "0")  # a consumer that is dead for now
        router = Router(url, domain=DOMAIN, length=100, claim_after="50ms", shards=1)
        for number in range(2, 2001):
            try:
                bus.publish("job", "work", number, seq=number)
            except BackpressureError:
                refused += 1
            if number % 50 == 0:
                router.step()
        taken: list[int] = []
        while found := client.xreadgroup("audit", "late", {stream: ">"}, count=500, noack=True):
            taken += [len(taken) + 1 for _ in found[0][1]]
        router.step()
        left = client.xlen(stream)
        router.close()
    lost = 2000 - refused - len(taken)
    figures = Figures(keys=1, operations=2000, lost=lost)
    return Result(
        figures=figures,
        passed=not lost and refused > 0,
        promise="0 lost; publishers are refused instead",
        notes={"kept for the dead": len(taken), "refused": refused, "left afterwards": left},
    )
