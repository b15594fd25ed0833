"""What a seed stands for: the processes, the keys and their terms, the callers and the faults.

Each seed switches some kinds of faults on and the rest off (a swarm), so that rare combinations
are met and each fault is also met alone. About one seed in eight has no faults at all.
"""

from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.network_errors import NETWORK
from oncekey.policy import Terms
from tests.simulation.dice import WHOLE, Dice

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
FORKS: Final = 1

Mode = Literal["atomic", "keyed", "bare"]
MODES: Final[tuple[Mode, ...]] = ("atomic", "keyed", "bare")
ON_THE_LINE: Final = ("request lost", "reply lost", "late", "doubled", "refused", "full")
IN_TIME: Final = (
    "crash",
    "crash",
    "stop",
    "pause",
    "pause",
    "cut",
    "outage",
    "full",
    "fail over",
    "fail over",
    "evict",
    "fork",
    "wall clock jumps",
    "store clock stands",
    "resolve",
    "forget",
    "another store hangs",
    "another store hangs",
)
VERBS: Final = ("claim", "note", "settle", "release", "release", "get", "get")
"""Where it hurts most to lose the store: at these."""
MIDST: Final = (*VERBS, "effect", "effect", "effect")
"""Where it hurts most to be cut off: in the middle of these, or right behind."""
FOCI: Final = (
    "cannot record",
    "cannot give back",
    "cannot give back",
    "gives way",
    "gives way",
    "same token",
    "unwritable",
    "hangs in silence",
    "beside",
    "beside",
    "hides",
    "torn",
    "torn",
    "torn open",
    "forgets",
)
"""Moments that chance alone would bring about too seldom: some seeds are about one of them."""
OPEN: Final = ("cannot give back", "hangs in silence", "beside", "hides", "torn open")
"""Those about calls that run without the store."""
LEASES: Final[dict[str, tuple[int, ...]]] = {
    "gives way": (1, 2),
    "unwritable": (8,),
    "torn": (8,),
    "beside": (8,),
    "hides": (2,),
    "torn open": (2,),
    "hangs in silence": (1,),
}
"""Seconds of a lease, where it is about long or short ones."""
TORN: Final = (
    "_reconcile",
    "_reconcile",
    "_lead",
    "_start",
    "_grant",
    "begin",
    "live",
    "settle",
    "leave",
    "abandon",
    "let_go",
    "_end",
    "land",
)
"""Functions in which a signal would do harm, if it did not come seldom there."""
TORN_AT_ITS_END: Final = ("_end", "land", "land", "leave", "let_go")
VALUES: Final = ("dict", "dict", "dict", "none", "zero", "empty", "unkeepable")
STARTS: Final[dict[str, tuple[int, ...]]] = {
    "": (0, 1_000, 30_000, SECOND, 3 * SECOND),
    "beside": (0, 200_000, 700_000, 1_300_000, 2_000_000, 3 * SECOND, 4 * SECOND),
    "hides": (0, 0, 1_000, 200_000, 350_000, 450_000),
}
"""How much later than the first of them callers come."""
TRIES: Final = {"unwritable": 6}
LOSSES: Final[dict[str, list[tuple[int, str]]]] = {
    "cannot give back": [(WHOLE // 6, "refused")],
    "beside": [(WHOLE // 4, "request lost"), (WHOLE // 2, "reply lost")],
    "hides": [(WHOLE // 2, "refused")],
    "torn open": [(WHOLE // 2, "refused")],
    "unwritable": [],
    "hangs in silence": [],
    "forgets": [],
}
"""What gets lost on the line where a seed is about such a moment."""
CUTS: Final = ("cancel", "cancel", "exit", "close")
LEAPS: Final = (61 * MINUTE, 90 * MINUTE, 23 * HOUR, 25 * HOUR, 49 * HOUR)
"""How much later somebody comes back, where a seed is about long times."""


class Declined(Exception):  # noqa: N818 - as a user would name it
    """The user's code says no, definitely."""


class TransportError(Exception):
    """The connection of a client broke: as httpx names its own."""


TransportError.__module__ = "httpx"


class KeyPlan(Struct):
    """One key: how it is protected and what the code under it does."""

    scope: str
    key: str
    mode: Mode
    terms: Terms
    reconciles: bool
    notes: int
    stepped: bool
    value: str
    before: int
    after: int
    errors: int
    """In parts of WHOLE: how often the code raises before its effect."""
    doubts: int
    """In parts of WHOLE: how often the effect's own connection breaks."""
    hangs: int = 0
    """Which of its runs hangs; 0: none."""
    hangs_behind: bool = False
    """Whether it hangs behind its effect, and not before it."""
    hangs_for: int = 0
    """For so many microseconds; 0: for ever."""


class Caller(NamedTuple):
    """Somebody who wants one thing and asks until it is answered."""

    key: int
    payload: str
    start: int
    tries: int
    backoff: int
    cut: str
    """How one of its calls is cut off; empty when none is."""
    cut_after: int
    cut_in: str
    """The verb in the middle of which it is cut off, or behind the effect; else at a time."""
    tear: int = 0
    """In front of so many lines of the library a signal raises an exception; 0: there is none."""
    leap: int = 0
    """How much later it comes back after every second try."""
    tear_in: str = ""
    """The function whose lines count for the signal; empty: all do."""


class Upon(NamedTuple):
    """What befalls a process at the moment when it sends a verb for the nth time.

    It is cut off from the store, or falls asleep for a while before it sends it.
    """

    verb: str
    nth: int
    how: str
    long: int


class Fault(NamedTuple):
    """Something that befalls a process or the store at a time."""

    number: int
    at: int
    kind: str
    where: int
    long: int
    bits: int


class Plan:
    """Everything about a seed that is drawn before the first event."""

    def __init__(self, seed: int) -> None:
        swarm = Dice(seed, 1)
        quiet = swarm.one_in(8)
        self.heal_at = swarm.between(4, 9) * SECOND
        focus = Dice(seed, 5)
        self.focus = "" if quiet or focus.below(5) > 1 else focus.pick(FOCI)
        self.nodes = swarm.pick((1, 2, 2, 2, 3))
        if self.focus:
            self.nodes = 2 if self.focus in ("gives way", "same token") else 1
        self.colours = swarm.pick(("sync", "async", "both", "both"))
        self.latency = swarm.pick((100, 1_000, 5_000))
        self.time_out = swarm.pick((0.3, 1.0))
        self.lateness = swarm.pick((200_000, SECOND, 3 * SECOND))
        self.watching = swarm.one_in(2)
        self.cached = swarm.one_in(2) or self.focus == "forgets"
        self.purging = swarm.one_in(6)
        self.edges = swarm.one_in(3)
        drifts = (0.97, 1.0, 1.03) if swarm.one_in(4) else (1.0,)
        self.rates = [swarm.pick(drifts) for _ in range(self.nodes + FORKS)]
        self.skews = [swarm.between(-5, 5) * SECOND for _ in range(self.nodes + FORKS)]
        self.limits = self._on_the_line(swarm, quiet)
        """Up to which number each kind of loss is meant."""
        if self.focus in ("beside", "hangs in silence"):
            self.time_out = 1.0 if self.focus == "beside" else 0.3
        self.trouble = max((limit for limit, _ in self.limits), default=0)
        self.unwritable = self.focus == "unwritable"
        expiring = swarm.one_in(6)
        self.evicts = not quiet and swarm.one_in(5)
        atomic = not self.evicts and self.focus not in (*OPEN, "unwritable", "forgets")
        several = swarm.pick((1, 1, 1, 2))
        self.keys = [
            _key(Dice(seed, 20 + number), number, self.watching, expiring, atomic, self.focus)
            for number in range(2 if self.unwritable else several)
        ]
        shortest = min(key.terms.lease for key in self.keys)
        self.tick = shortest // 2 if swarm.one_in(5) or self.focus == "same token" else 1
        """The store's clock moves in steps of so many microseconds."""
        self.callers = self._callers(Dice(seed, 2), quiet)
        self.faults = (
            [] if quiet or (focus.one_in(2) and self.focus) else self._in_time(Dice(seed, 3))
        )
        if self.focus == "same token":  # the store forgets a claim while its clock stands
            start = self.callers[0].start + self.keys[0].before + focus.below(100_000)
            self.faults.append(
                Fault(len(self.faults), start, "fail over", 0, 4 * SECOND, focus.bits() & ~1)
            )
        self.upon = None if quiet else self._upon(Dice(seed, 4))
        self.leap = 0
        """How much later somebody comes back; 0: nobody does."""
        if not quiet:
            self._befall(seed)
        if self.tick > 1:  # some leases are shorter now
            self.tick = min(self.tick, min(key.terms.lease for key in self.keys) // 2)

    def _befall(self, seed: int) -> None:
        """What else is to happen: all of it where the seed is about nothing else."""
        if self.focus == "torn":
            self._tear_asking(Dice(seed, 7))
        elif self.focus == "torn open":
            dice = Dice(seed, 7)
            self.callers = [
                one._replace(tear=1 + dice.below(3), tear_in=dice.pick(TORN_AT_ITS_END))
                for one in self.callers
            ]
        elif self.focus == "hangs in silence":
            self._hang(Dice(seed, 6), always=True)
        elif self.focus == "unwritable":
            self._stop(Dice(seed, 10))
        elif self.focus == "hides":
            key = self.keys[0]
            key.hangs, key.before, key.after = 1, key.before % 50_000, key.after % 50_000
            key.terms = replace(key.terms, heartbeat=False, max_run=None)
            key.errors = WHOLE // 2
        elif not self.focus:
            self._hang(Dice(seed, 6))
            self._tear(Dice(seed, 7))
            self._refuse(Dice(seed, 8))
            self._leap(Dice(seed, 9))
        if self.focus in ("torn", "unwritable"):
            self.heal_at = 12 * SECOND

    def _stop(self, dice: Dice) -> None:
        """The process ends while it still has to record what the store refuses, and other ends."""
        if dice.one_in(2):
            start = self.callers[0].start + dice.below(dice.pick((SECOND, 11 * SECOND)))
            self.faults.append(Fault(len(self.faults), start, "stop", 0, SECOND, dice.bits()))

    def _hang(self, dice: Dice, *, always: bool = False) -> None:
        """The code of a key hangs in one of its runs, which only the end of its lease can end."""
        if not dice.one_in(5) and not always:
            return
        key = self.keys[0]
        lease = dice.pick((1,) if always else (1, 1, 2)) * SECOND
        renewed = always or not dice.one_in(4)
        key.terms = replace(
            key.terms,
            lease=lease,
            heartbeat=renewed,
            max_run=1.5 * lease / SECOND if renewed else None,
            quiet=2 * lease,
            heartbeat_every=lease / SECOND / 3,
        )
        key.before, key.after = key.before % lease, key.after % lease
        key.hangs, key.hangs_behind = dice.pick((1, 1, 1, 2)), dice.one_in(2)
        if always:
            key.hangs = 1
        key.hangs_for = dice.pick((0, 0, 2 * lease, 5 * lease))
        self.callers = [one._replace(tries=4) for one in self.callers]

    def _tear_asking(self, dice: Dice) -> None:
        """Those who come later are torn where it is about asking how the first attempt ended."""
        first, *later = self.callers
        self.callers = [first._replace(cut="")]
        for number, one in enumerate(later, start=1):
            self.callers.append(
                one._replace(
                    start=first.start + number * dice.below(2 * SECOND),
                    cut="",
                    tear=1 + dice.below(12),
                    tear_in=dice.pick(TORN),
                )
            )

    def _tear(self, dice: Dice) -> None:
        """Signals raise exceptions between two lines of the library."""
        if dice.one_in(5):
            self.callers = [
                self._torn(dice, one._replace(tries=3)) if number == 0 or dice.one_in(3) else one
                for number, one in enumerate(self.callers)
            ]

    @staticmethod
    def _torn(dice: Dice, one: Caller) -> Caller:
        if dice.one_in(2):
            return one._replace(tear=1 + dice.below(12), tear_in=dice.pick(TORN))
        return one._replace(tear=1 + dice.below(dice.pick((60, 150, 400))))

    def _refuse(self, dice: Dice) -> None:
        """The store refuses its users for a while, as a server does that lacks their rights."""
        if not dice.one_in(5):
            return
        key = self.keys[0]
        lease = key.terms.lease
        if not key.hangs and not dice.one_in(3):
            lease = dice.pick((4, 4, 8)) * SECOND
            key.terms = replace(
                key.terms,
                lease=lease,
                max_run=None,
                quiet=2 * lease,
                heartbeat=True,
                heartbeat_every=lease / SECOND / 3,
            )
            key.after = dice.below(2 * lease)
            self.heal_at = max(self.heal_at, self.callers[0].start + 3 * lease)
        start = self.callers[0].start
        soon = start + key.before + dice.below(dice.pick((30_000, lease, 3 * lease)))
        if dice.one_in(2):  # when it is renewed for the first time
            soon = start + lease // 3 - 300_000
            self.callers = [one._replace(tries=8, backoff=1_500_000) for one in self.callers]
        self.faults.append(
            Fault(
                number=len(self.faults),
                at=min(soon, self.heal_at - 1),
                kind="access",
                where=0,
                long=dice.pick((600_000, 600_000, lease // 3, 6 * SECOND)),
                bits=dice.bits(),
            )
        )

    def _leap(self, dice: Dice) -> None:
        """Hours and days pass between two tries, and somebody sleeps through them."""
        if not dice.one_in(6):
            return
        self.leap = leap = dice.pick(LEAPS)
        self.purging = self.purging and leap < 2 * HOUR
        if dice.one_in(2):
            self.lateness = 90 * SECOND
        for number, key in enumerate(self.keys):
            ttl = dice.pick((5 * SECOND, HOUR, DAY, 7 * DAY))
            key.terms = replace(key.terms, ttl=ttl)
            if number == 0 and dice.one_in(2):
                key.errors = WHOLE // 2
            if number == 0 and dice.one_in(2) and key.mode != "atomic":
                key.doubts = WHOLE // 2
        times = dice.pick((1, 2, 2))
        callers = [
            one._replace(leap=leap, tries=1 + 2 * times) if dice.one_in(2) else one
            for one in self.callers
        ]
        callers += [
            one._replace(start=one.start + leap + dice.below(SECOND), cut="", tear=0)
            for one in callers
            if dice.one_in(2)
        ]
        self.callers = callers
        if dice.one_in(2):
            near = self.callers[0].start + dice.below(dice.pick((30_000, 500_000, 4 * SECOND)))
            where, bits = dice.below(self.nodes), dice.bits()
            long = leap - dice.below(10 * SECOND)
            self.faults.append(Fault(len(self.faults), near, "sleep", where, long, bits))
        later = [
            one._replace(number=len(self.faults) + number, at=one.at + leap)
            for number, one in enumerate(self.faults)
            if one.kind != "sleep" and dice.one_in(2)
        ]
        self.faults += later
        self.heal_at += times * (leap + 10 * SECOND)

    def _on_the_line(self, swarm: Dice, quiet: bool) -> list[tuple[int, str]]:
        limits: list[tuple[int, str]] = []
        total = 0
        if not quiet and not swarm.one_in(4):
            for kind in ON_THE_LINE:
                if swarm.one_in(2):
                    most = WHOLE - total
                    total += min(WHOLE * swarm.pick((1, 4, 12, 50)) // 100, most)
                    limits.append((total, kind))
        return LOSSES.get(self.focus, limits)

    def _callers(self, dice: Dice, quiet: bool) -> list[Caller]:
        callers = []
        cuts = not quiet and dice.one_in(2)
        others = dice.one_in(3)
        away = self.focus == "gives way"
        if self.focus in (*OPEN, "unwritable", "forgets"):
            cuts = others = False
        for key in range(len(self.keys)):
            start = dice.below(SECOND)
            several = 4 if self.focus in STARTS else 3
            for _ in range(several if self.focus else dice.pick((1, 2, 2, 3))):
                one = Caller(
                    key=key,
                    payload="b" if others and dice.one_in(3) else "a",
                    start=start + dice.pick(STARTS.get(self.focus, STARTS[""])),
                    tries=TRIES.get(self.focus, 3) if self.focus else dice.pick((1, 2, 3)),
                    backoff=dice.pick((50_000, 400_000, 1_500_000)),
                    cut=dice.pick(CUTS) if (cuts and dice.one_in(2)) or away else "",
                    cut_after=dice.below(dice.pick((20_000, 300_000, 3 * SECOND))),
                    cut_in="get" if away else dice.pick(MIDST) if dice.one_in(2) else "",
                )
                callers.append(one)
        return callers

    def _in_time(self, dice: Dice) -> list[Fault]:
        faults: list[Fault] = []
        on = [kind for kind in IN_TIME if dice.one_in(4)]
        starts = [caller.start for caller in self.callers]
        for kind in on:
            if kind == "evict" and not self.evicts:
                continue
            near = dice.pick(starts) + dice.below(dice.pick((30_000, 500_000, 4 * SECOND)))
            faults.append(
                Fault(
                    number=len(faults),
                    at=min(near, self.heal_at - 1),
                    kind=kind,
                    where=dice.below(self.nodes),
                    long=dice.pick((200_000, SECOND, 3 * SECOND, 6 * SECOND)),
                    bits=dice.bits(),
                )
            )
        return faults

    def _upon(self, dice: Dice) -> Upon | None:
        lease = self.keys[0].terms.lease
        long = dice.pick((SECOND, 2 * SECOND, 3 * SECOND))
        aimed = {
            "cannot record": Upon("settle", 1, "refused", 6 * SECOND),
            "cannot give back": Upon("give back", 1, "refused", 4 * SECOND),
            "gives way": Upon("settle", 1, "asleep", 2 * lease),
            "unwritable": Upon("settle", 1, "silent", 3 * SECOND) if dice.one_in(2) else None,
            "hangs in silence": Upon("claim", 1, dice.pick(("deaf", "deaf", "silent")), long),
        }
        if self.focus in aimed or not dice.one_in(4):
            return aimed.get(self.focus)
        return Upon(
            verb=dice.pick(VERBS),
            nth=dice.pick((1, 1, 2)),
            how=dice.pick(("refused", "refused", "silent", "deaf", "asleep")),
            long=dice.pick((200_000, SECOND, 3 * SECOND, 6 * SECOND)),
        )


def _key(  # noqa: PLR0917 - what a seed says of its keys
    dice: Dice, number: int, watching: bool, expiring: bool, atomic: bool, focus: str
) -> KeyPlan:
    asking = dice.one_in(5) or focus in ("cannot give back", "torn")
    """Whether it is all about asking how a doubtful attempt ended."""
    mode: Mode = "bare" if asking else dice.pick(MODES if atomic else MODES[1:])
    lease = dice.pick(LEASES.get(focus, (1, 2, 4, 8))) * SECOND
    waits = (0.0, 0.5, 3.0) if watching else (0.0, 0.02, 0.15)
    terms = Terms(
        ttl=dice.between(1, 5) * SECOND if expiring else DAY,
        lease=lease,
        heartbeat=not dice.one_in(2 if focus == "gives way" else 10),
        max_run=1.5 * lease / SECOND if dice.one_in(10) else None,
        wait=0.0
        if focus == "hides"
        else 3.0
        if focus
        else waits[-1]
        if asking
        else dice.pick(waits),
        retry_after=0.5,
        keep_all=dice.one_in(5),
        keep=(Declined,) if dice.one_in(3) else (),
        uncertain=NETWORK,
        uncertain_clients=True,
        definite=(),
        hold=dice.one_in(3),
        max_attempts=dice.pick((2, 3)) if dice.one_in(5) else None,
        fail_open=mode != "atomic" and (dice.one_in(3) or focus in OPEN),
        max_result=1_000_000,
        quiet=2 * lease,
        heartbeat_every=lease / SECOND / 3,
    )
    return KeyPlan(
        scope="ab"[number],
        key="order",
        mode=mode,
        terms=terms,
        reconciles=asking or (mode == "bare" and dice.one_in(3)),
        notes=dice.pick((0, 0, 1, 2)),
        stepped=mode != "atomic" and dice.one_in(6),
        value=dice.pick(VALUES),
        before=dice.below(dice.pick((1_000, 100_000, lease))),
        after=dice.below(dice.pick((1_000, 100_000, 2 * lease))),
        errors=0 if asking else dice.pick((0, 0, WHOLE // 4)),
        doubts=3 * WHOLE // 4 if asking else dice.pick((0, 0, WHOLE // 4)),
    )
