"""A simulated process: the real engines of both colours, flights, cache, breaker and keeper."""

from copy import copy
from typing import TYPE_CHECKING

from oncekey.core.requests import Settle
from oncekey.engine.breaker import Breaker
from oncekey.engine.cache import Cache
from oncekey.engine.chores import Purging, UnrecordedEnd
from oncekey.engine.engine import Engine
from oncekey.engine.engine_async import AsyncEngine
from oncekey.engine.keeper import Chore, Keeper
from oncekey.engine.single_flight import Flight, Flights
from oncekey.engine.ticket import Nonces
from oncekey.observe import Event, Name, Observers
from tests.simulation.hub import NEVER, Activity, DeadError
from tests.simulation.line import AwaitedLine, Line

if TYPE_CHECKING:
    from tests.simulation.world import World

_HEARD: frozenset[Name] = frozenset(
    {
        "taken_over",
        "lost",
        "not_recorded",
        "never_recorded",
        "unprotected",
        "renewal_failed",
        "not_kept",
        "purged",
    }
)


class Process:
    """What one operating system process holds in memory, and loses when it dies."""

    def __init__(self, world: "World", index: int, parent: "Process | None" = None) -> None:
        self.world = world
        world.lived.append(self)
        self.index = index
        self.activities: dict[Activity, None] = {}
        self.dead = False
        self.ends_soon = False
        self.stopping = False
        self.slept = False
        self.paused_until = 0
        self.cut_until = 0
        self.cut_how = ""
        self.out_of_reach = 0
        """How often it could not reach the store, or got no answer in time."""
        self.trouble_at = -1
        self.refused_at = -1
        """When the store last refused it something as a server does that lacks its rights."""
        self.unrecorded_at = NEVER
        """Since when nothing is known to have been recorded, after a call that could not."""
        self.never_recorded = 0
        """How often it told that something will never be recorded."""
        self.stood = 0
        """For how long its monotonic clock stood, as it does while a machine sleeps."""
        self.rate = world.plan.rates[index]
        self.skew = world.plan.skews[index]
        self.line = Line(world, self)
        self.observers = Observers([Listener(self)])
        self._purges = False
        self.urgent: dict[Chore, bool] = {}
        """What must get through to the store, and whether it was tried, at the end once more."""
        if parent is None:
            self.keeper: Keeper = SimulatedKeeper(self)
            self.flights = Flights()
            self.cache = Cache(1_000_000) if world.plan.cached else None
            self.breaker = Breaker(self.line)
            self.nonces = Nonces()
        else:
            self._inherit(parent)
        self.engine = Engine(
            self.line, self.line, self.flights, self.observers, self.cache, self.breaker
        )
        self.engine_async = AsyncEngine(
            AwaitedLine(self.line),
            self.line,
            self.flights,
            self.observers,
            self.cache,
            self.breaker,
        )

    def _inherit(self, parent: "Process") -> None:
        """The memory of the parent, copied, and made new as a fork does it."""
        self.keeper = copy(parent.keeper)
        self.keeper.process = self  # type: ignore[attr-defined]  # it is a simulated one
        self.out_of_reach = parent.out_of_reach
        self.keeper._queues = {delay: dict(queue) for delay, queue in self.keeper._queues.items()}
        self.flights = copy(parent.flights)
        self.flights._flights = {
            identity: _copied(flight) for identity, flight in self.flights._flights.items()
        }
        self.cache = copy(parent.cache)
        self.breaker = copy(parent.breaker)
        self.breaker._store = self.line
        self.nonces = copy(parent.nonces)
        self.nonces._stock = list(parent.nonces._stock)
        for one in (self.keeper, self.flights, self.cache, self.breaker, self.nonces):
            after_fork = getattr(one, "after_fork", None)
            if after_fork is not None:
                after_fork()

    def use(self) -> None:
        """Somebody uses it: it purges by itself from now on."""
        if not self._purges and self.world.plan.purging:
            self._purges = True
            self.take_up(Purging(self.line, self.observers), 1.5)

    def take_up(self, chore: Chore, delay: float) -> None:
        """The keeper has one chore more."""
        if not self.dead:
            if chore.urgent:
                self.urgent[chore] = False
            self.keeper.take_up(chore, delay)

    def suffer(self, until: int) -> None:
        """Until then it is no wonder when something of it takes too long."""
        self.trouble_at = max(self.trouble_at, until)

    def fall_asleep(self, until: int) -> None:
        """All of it sleeps until then, or for longer if it does already."""
        self.paused_until, self.slept = max(self.paused_until, until), True
        self.suffer(self.paused_until)

    def die(self) -> None:
        """Nothing of it goes on; what it has sent is on its way."""
        self.dead = True
        self.suffer(self.world.hub.now)
        for activity in list(self.activities):
            self.world.hub.throw(activity, DeadError())


class Listener:
    """Hears what the observers of a process are told."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def wants(self, name: Name) -> bool:
        return name in _HEARD

    def __call__(self, event: Event) -> None:
        self._process.never_recorded += event.name == "never_recorded"
        self._process.world.seen.add(event.name)


class SimulatedKeeper(Keeper):
    """The keeper as it is; but it does not wait for the end of this interpreter, and is counted."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._reset()

    def _do(self, chore: Chore) -> float | None:  # type: ignore[override]  # it knows its process
        """As the keeper does it; what would be logged as a defect is raised."""
        urgent = self.process.urgent
        if chore in urgent:
            urgent[chore] = True
        again = chore.do()
        if again is None:
            urgent.pop(chore, None)
        return again


class Hanging(Chore):
    """What the keeper has to do for another store of the process, which does not answer."""

    __slots__ = ("_seconds", "_world")

    def __init__(self, world: "World", seconds: float) -> None:
        super().__init__()
        self._world = world
        self._seconds = seconds

    @property
    def lane(self) -> object:
        return self

    def do(self) -> float | None:
        self._world.hub.wait(self._seconds)
        return None


def is_settle(chore: Chore) -> bool:
    """Whether the chore has to record what was done."""
    return isinstance(chore, UnrecordedEnd) and isinstance(chore._ask, Settle)


def _copied(flight: Flight) -> Flight:
    twin = Flight(flight.identity, flight.thread, flight.known_at)
    twin.answer, twin.taken_at = flight.answer, flight.taken_at
    return twin
