"""The three processes, and what became of each order."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.chain.brokers import Reader, reader_of
from examples.chain.database import Database
from examples.chain.services import REPEATS, SERVICES
from examples.chain.worker import prepare
from oncekey.outbox import Outbox

ROOT = Path(__file__).parents[2]
MODULE = "examples.chain.worker"


@dataclass(frozen=True)
class Way:
    """An order, and when it came to each service; more than once is once too often."""

    number: int
    placed: float
    charged: list[float]
    mailed: list[float]


@dataclass(frozen=True)
class Totals:
    """What is claimed about a chain, counted in its databases."""

    orders: int
    charges: int
    mails: int
    lost: int
    """Orders without a charge or without a mail."""
    doubled: int
    """Charges and mails beyond the first of an order."""
    repeats: int
    """Messages that came again, and that an inbox knew."""
    kills: int

    def __str__(self) -> str:
        kills = "1 kill" if self.kills == 1 else f"{self.kills:,} kills"
        again = "1 message" if self.repeats == 1 else f"{self.repeats:,} messages"
        return (
            f"{self.orders:,} orders, {self.charges:,} charges, {self.mails:,} mails, "
            f"{self.lost:,} lost, {self.doubled:,} doubled; {kills}, {again} that "
            f"came again"
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where a chain works: a database for each service, and two brokers between them."""

    databases: Mapping[str, str]
    first: str
    second: str
    orders: int
    pace: float = 0.0
    lease: float = 2.0
    """So many seconds after the death of a relay its messages are sent again."""
    deadly: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Points at which the first process of a service dies."""
    errors: Path | None = None
    """The file for what processes say when they end; None for where everything else is said."""


def on_files(folder: Path, orders: int, **further: object) -> Settings:
    """Everything in files of SQLite."""
    return Settings(
        databases={name: f"sqlite:///{folder / name}.db" for name in SERVICES},
        first=f"sqlite:///{folder / 'first-broker'}.db",
        second=f"sqlite:///{folder / 'second-broker'}.db",
        orders=orders,
        lease=1.0,
        **further,  # type: ignore[arg-type]
    )


class Chain:
    """From here to the end of a `with` block."""

    def __init__(self, settings: Settings, *, seed: int = 1) -> None:
        """Make tables and streams, and start the processes."""
        self._settings = settings
        self._chance = random.Random(seed)  # noqa: S311 - it decides who dies
        self.kills: dict[str, int] = dict.fromkeys(SERVICES, 0)
        self.started: dict[str, float] = {}
        self._stack = ExitStack()
        with ExitStack() as stack:  # what has begun ends, should the rest fail
            stack.callback(self._end)
            self._databases = {
                name: self._stack.enter_context(closing(Database(url)))
                for name, url in settings.databases.items()
            }
            for name, service in SERVICES.items():
                prepare(service, self._databases[name], (service.table, REPEATS))
            self._readers = [self._reader(name) for name in ("payments", "mail")]
            for reader in self._readers:
                reader.prepare()
            self._processes: dict[str, subprocess.Popen[bytes]] = {}
            for name in SERVICES:
                self._start(name, settings.deadly.get(name, ()))
            stack.pop_all()

    def tend(self) -> None:
        """Start again what has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                self.kills[name] += 1
                process.communicate()  # closes what it had
                self._start(name)

    def kill(self, name: str | None = None) -> str:
        """Kill a service with SIGKILL, any unless it is named. Return which."""
        name = name or self._chance.choice(list(SERVICES))
        process = self._processes[name]
        process.kill()
        process.wait()
        return name

    def ways(self) -> list[Way]:
        """Return the way of each order so far."""
        orders = self._databases["orders"].ask(
            "SELECT number, placed_at FROM orders ORDER BY number"
        )
        found = {number: Way(number, at, [], []) for number, at in orders}
        charges = self._databases["payments"].ask("SELECT number, charged_at FROM charges")
        mails = self._databases["mail"].ask("SELECT number, mailed_at FROM mails")
        for number, at in charges:
            found.setdefault(number, Way(number, at, [], [])).charged.append(at)
        for number, at in mails:
            found.setdefault(number, Way(number, at, [], [])).mailed.append(at)
        return list(found.values())

    def totals(self) -> Totals:
        """Count what is in the databases."""
        ways = self.ways()
        parts = [part for way in ways for part in (way.charged, way.mailed)]
        repeats = [
            self._databases[name].ask("SELECT count(*) FROM repeats")[0][0]
            for name in ("payments", "mail")
        ]
        return Totals(
            orders=len(ways),
            charges=sum(len(way.charged) for way in ways),
            mails=sum(len(way.mailed) for way in ways),
            lost=sum(not way.charged or not way.mailed for way in ways),
            doubled=sum(max(0, len(part) - 1) for part in parts),
            repeats=sum(repeats),
            kills=sum(self.kills.values()),
        )

    def settled(self) -> bool:
        """Return whether all orders are placed, and no message is under way any more."""
        ((placed,),) = self._databases["orders"].ask("SELECT count(*) FROM orders")
        if placed < self._settings.orders:
            return False
        for name, reader in zip(("orders", "payments"), self._readers, strict=True):
            outbox = Outbox(self._settings.databases[name])
            pending = outbox.figures().pending
            outbox.close()
            if pending or reader.left():
                return False
        return True

    def run(self, *, kills: int, longest: float = 1.0) -> None:
        """Kill services at random so many times, then wait until everything has arrived."""
        for _ in range(kills):
            time.sleep(self._chance.uniform(0, longest))
            self.kill()
            self.tend()
        while not self.settled():
            time.sleep(0.05)
            self.tend()

    def reopen(self) -> None:
        """Leave connections that a server has ended."""
        for database in self._databases.values():
            database.close()
        for reader in self._readers:
            reader.close()
        self._readers = [self._reader(name) for name in ("payments", "mail")]

    def _reader(self, name: str) -> Reader:
        url = self._settings.first if name == "payments" else self._settings.second
        return reader_of(url, SERVICES[name].reads or "", name)

    def _start(self, name: str, deadly: Sequence[str] = ()) -> None:
        settings = self._settings
        reads = {"orders": "", "payments": settings.first, "mail": settings.second}[name]
        sends = {"orders": settings.first, "payments": settings.second, "mail": ""}[name]
        words = ["--database", settings.databases[name], "--reads", reads, "--sends", sends]
        words += ["--orders", str(settings.orders), "--pace", str(settings.pace)]
        words += ["--lease", str(settings.lease)]
        for point in deadly:
            words += ["--die", point]
        self.started[name] = time.time()
        with ExitStack() as stack:
            errors = stack.enter_context(settings.errors.open("ab")) if settings.errors else None
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", MODULE, name, *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stderr=errors,
            )

    def _end(self) -> None:
        for process in getattr(self, "_processes", {}).values():
            process.kill()
            process.communicate()
        for reader in getattr(self, "_readers", ()):
            reader.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
