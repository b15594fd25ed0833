"""Rows about the server itself: killed, cut from its disk, failed over, full."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from oncekey import InProgressError, NotRecordedError, Once, Policy, StoreError
from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.crowd import Crowd, wait_until
from tests.faults.matrix.gate import Gate
from tests.faults.matrix.lab import Lab, Result, Run
from tests.faults.matrix.power import cut_postgres, cut_redis
from tests.faults.matrix.spec import Mode, Surface
from tests.faults.matrix.store_servers import PostgresPlace, RedisPlace
from tests.faults.matrix.verdict import Figures

STORES = ("sqlite", "redis", "postgres", "mariadb")


class Outages:
    """A server that is killed again and again, and started again soon after."""

    def __init__(self, lab: Lab, place: Any, *, every: tuple[float, float]) -> None:
        self._lab, self._place, self._every = lab, place, every
        self._due = time.monotonic() + lab.random.uniform(*every)
        self._down = False
        self.count = 0
        self.ended: list[int] = []

    def __call__(self, crowd: Crowd) -> None:
        if time.monotonic() < self._due:
            return
        if not self._place.server:  # whoever works is the store
            for name in list(crowd.running):
                crowd.kill(name)
            self.count += 1
            self._due = time.monotonic() + self._lab.random.uniform(*self._every)
        elif self._down:
            self.heal(crowd)
            self._due = time.monotonic() + self._lab.random.uniform(*self._every)
        else:
            self._place.kill()
            self._down = True
            self.count += 1
            self._due = time.monotonic() + self._lab.random.uniform(0.1, 0.8)

    def heal(self, _crowd: Crowd) -> None:
        """It is there."""
        if self._down:
            self._place.start()
            self._down = False
            self.ended.append(time.monotonic_ns())


def _killed(surface: Surface) -> Cell:
    """F5: the server is killed every few seconds while the crowd works."""

    def run(lab: Lab, store: str) -> Result:
        place = lab.places.get(store)
        url = place.fresh()
        every = (0.5, 1.0) if lab.small else (1.5, 3.5)
        outages = Outages(lab, place, every=every)
        seconds = 3.0 if lab.small else (30.0 if surface == "function" else 15.0)
        figures = lab.crowd(
            Run(
                place=url,
                surface=surface,
                mode="atomic" if surface == "atomic" else "keyed",
                seconds=seconds,
                options={"lease": "1s"},
            ),
            outages,
            heal=outages.heal,
        )
        return Result(
            figures=figures,
            passed=figures.clean and outages.count > 0,
            promise="0 doubled, 0 lost",
            notes={"times killed": outages.count, "slowest of 99 %, s": figures.slowest},
        )

    return run


for _surface, _stores in (
    ("function", STORES),
    ("coroutine", STORES),
    ("http", ("redis", "postgres", "mariadb")),
    ("job", ("redis", "postgres", "mariadb")),
    ("leased", ("postgres", "mariadb")),
    ("atomic", ("sqlite", "postgres", "mariadb")),
):
    _mode = "atomic" if _surface == "atomic" else "keyed"
    cell("F5", "the server is killed again and again", _stores, surface=_surface, mode=_mode)(
        _killed(_surface)  # type: ignore[arg-type]  # literals of the table
    )


def _power(setting: str) -> Cell:
    """F6: the machine loses its power: what was not on the disk yet is gone."""

    def run(lab: Lab, store: str) -> Result:
        with ExitStack() as stack:
            place: Any
            if store == "redis":
                place = stack.enter_context(
                    lab.places.alone(RedisPlace, lab.places.folder, setting)
                )
                cut: Callable[[Any, Crowd], int] = cut_redis
            else:
                settings = {"synchronous_commit": setting}
                if setting == "off":
                    settings["wal_writer_delay"] = "5s"  # so that there is something to lose
                place = stack.enter_context(lab.places.alone(PostgresPlace, **settings))
                cut = cut_postgres
            url = place.fresh()
            lost_bytes: list[int] = []
            due = time.monotonic() + (1.5 if lab.small else 2.5)
            rounds = 1 if lab.small else 4

            def trouble(crowd: Crowd) -> None:
                nonlocal due
                if len(lost_bytes) < rounds and time.monotonic() > due and len(crowd.running) > 2:
                    lost_bytes.append(cut(place, crowd))
                    due = time.monotonic() + 2.5

            figures = lab.crowd(
                Run(
                    place=url,
                    mode="bare",
                    seconds=3.0 if lab.small else 14.0,
                    options={"lease": "5s"},
                ),
                trouble,
            )
        # The store's writes on PostgreSQL wait for the disk, whatever the server is told.
        safe = setting != "everysec"
        again = figures.asked_again
        return Result(
            figures=figures,
            passed=bool(lost_bytes) and (not again if safe else again > 0),
            promise="0 doubled" if safe else "what the last second wrote may run again: shown",
            notes={
                "setting": setting,
                "power cuts": len(lost_bytes),
                "bytes lost": sum(lost_bytes),
            },
        )

    return run


for _setting, _store in (
    ("everysec", "redis"),
    ("always", "redis"),
    ("on", "postgres"),
    ("off", "postgres"),
):
    cell("F6", f"the power fails: {_setting}", (_store,), mode="bare")(_power(_setting))


def _failover(query: str, mode: Mode, **options: str) -> Cell:
    """F7: the primary's replica hears nothing for a while, and is then put in its place."""

    def run(lab: Lab, store: str) -> Result:
        with ExitStack() as stack:
            first = stack.enter_context(
                lab.places.alone(RedisPlace, lab.places.folder, "everysec", **options)
            )
            link = Gate(first.port)
            stack.callback(link.close)
            second = stack.enter_context(
                lab.places.alone(
                    RedisPlace, lab.places.folder, "everysec", replicaof=f"127.0.0.1 {link.port}"
                )
            )
            third: list[Any] = []
            with first.redis.client() as client:
                wait_until(lambda: client.wait(1, 100), "the replica follows")
            door = Gate(first.port)
            stack.callback(door.close)
            url = f"redis://127.0.0.1:{door.port}/0{query}"
            began = time.monotonic()
            frozen = [0.6, 2.0] if lab.small else [1.5, 5.0]
            state = "linked"

            def trouble(_crowd: Crowd) -> None:
                nonlocal state
                passed = time.monotonic() - began
                if state == "linked" and passed > frozen[0]:
                    link.freeze()
                    state = "frozen"
                elif state == "frozen" and passed > frozen[1]:
                    first.kill()
                    link.close()
                    with second.redis.client() as client:
                        client.replicaof("NO", "ONE")
                    third.append(
                        stack.enter_context(
                            lab.places.alone(
                                RedisPlace,
                                lab.places.folder,
                                "everysec",
                                replicaof=f"127.0.0.1 {second.port}",
                            )
                        )
                    )
                    door.lead_to(second.port)
                    state = "promoted"

            figures = lab.crowd(
                Run(
                    place=url,
                    mode=mode,
                    seconds=3.5 if lab.small else 9.0,
                    options={"lease": "1s"},
                ),
                trouble,
            )
        notes: dict[str, Any] = {
            "asked again": figures.asked_again,
            "refused": figures.refused.get("StoreError", 0),
        }
        if query:
            passed, promise = figures.clean, "0 doubled, 0 lost"
        elif mode == "keyed":
            # The records are gone, and with them the first answers; the effects are not.
            passed = not (figures.doubled or figures.lost or figures.stuck)
            promise = "0 doubled, 0 lost; the second answer may be another one"
        else:
            passed = figures.asked_again > 0
            promise = "what was not replicated runs again: shown"
        passed = passed and state == "promoted"
        return Result(figures=figures, passed=passed, promise=promise, notes=notes)

    return run


cell("F7", "fail-over without `wait=`", ("redis",), mode="bare")(_failover("", "bare"))
cell("F7", "fail-over without `wait=`", ("redis",), mode="keyed")(_failover("", "keyed"))
cell("F7", "fail-over with `wait=1,100ms`", ("redis",), mode="held")(
    _failover("?wait=1,100ms", "held")
)
cell("F7", "fail-over with `wait=1,100ms`", ("redis",), mode="keyed")(
    _failover("?wait=1,100ms", "keyed")
)


def _full(policy: str) -> Cell:
    """F8: the server's memory is full."""

    def run(lab: Lab, store: str) -> Result:
        keys = 400 if lab.small else 3000
        counts: dict[int, int] = dict.fromkeys(range(keys), 0)
        refused: Counter[str] = Counter()
        options = {"maxmemory-policy": policy}
        with lab.places.alone(RedisPlace, lab.places.folder, "everysec", **options) as place:
            url = place.fresh()
            with place.redis.client() as client:
                used = client.info("memory")["used_memory"]
                client.config_set("maxmemory", str(used + keys * 1200))
            once = Once(url, cache=False, observers=(), policy=Policy(wait=0))
            with closing(once):

                def work(number: int) -> str:
                    counts[number] += 1
                    return "x" * 2000

                for _ in range(2):
                    for number in range(keys):
                        try:
                            once.run(f"k{number}", work, number)
                        except (StoreError, NotRecordedError, InProgressError) as error:
                            refused[type(error).__name__] += 1
        again = sum(count > 1 for count in counts.values())
        figures = Figures(keys=keys, operations=2 * keys, asked_again=again, doubled=again)
        figures.refused = dict(refused)
        safe = policy == "noeviction"
        return Result(
            figures=figures,
            passed=(again == 0 and refused["StoreError"] > 0) if safe else again > 0,
            promise="0 doubled, new claims refused" if safe else "evicted records run again: shown",
            notes={"policy": policy, "new claims refused": refused["StoreError"]},
        )

    return run


for _policy in ("noeviction", "volatile-ttl", "allkeys-lru"):
    cell("F8", f"the memory is full: {_policy}", ("redis",), mode="bare")(_full(_policy))
