"""Send random requests to a store, and compare each answer with the machine applied to a dict.

Several workers ask in any order. Their tokens and nonces are kept, so that old ones are used again.
Requests are repeated. Time moves to where a rule changes its answer, and to one microsecond beside
it.
"""
# ruff: noqa: S101 - a comparison that fails is the point

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, Literal, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from oncekey.core import machine
from oncekey.core.record import Record, Status
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Granted,
    Note,
    OnExpired,
    Owned,
    Release,
    Renew,
    Request,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.stores.base import Store
from oncekey.testing.reference import RULES, Place, Reference

Spot = tuple[str | None, str]
Who = Literal["owner", "old", "old nonce", "old token"]

SPOTS: Final[tuple[Spot, ...]] = ((None, "k"), ("s", "k"), ("s", "l"), ("t", "k"))
_USUAL_SPOTS: Final = (*SPOTS, *SPOTS[:1] * 4)  # most about one key: it gets further
_BLOBS: Final = (None, b"", b"\xc0", b"blob")
_FINGERPRINTS: Final = ("1:x", "1:x", "1:x", "1:x", "1:y", "2:x", None)
_ON_EXPIRED: Final[tuple[OnExpired, ...]] = ("take", "take", "hold")
_ENDS: Final[tuple[Literal["completed", "failed"], ...]] = ("completed", "failed")
_DECISIONS: Final[tuple[Literal["completed", "failed", "released"], ...]] = (*_ENDS, "released")
_STATUSES: Final[tuple[Status | None, ...]] = (None, None, "running", *_DECISIONS, "held")
_WHO: Final[tuple[Who, ...]] = ("old", "old nonce", "old token")
_UNPROVED: Final[dict[str, Any]] = {"token": 0, "nonce": ""}


def random_proof(random: Random) -> Who:
    """Return which token and nonce a request shows, most often those of the owner."""
    return random.choice(_WHO) if random.randint(0, 3) == 0 else "owner"


def random_spot(random: Random) -> Spot:
    """Return the scope and the key of a request."""
    return random.choice(_USUAL_SPOTS)


def random_request(random: Random) -> Request:
    """Return any request about one of the keys.

    Leases and lifetimes are small numbers: the store's own tests choose how long they are. The
    proof of ownership is added later, by the model, which knows what was granted.
    """
    make = random.choice(_MAKERS)
    return make(random, random_spot(random))


def random_scan(random: Random) -> Scan:
    """Return any scan, with small pages."""
    return Scan(
        scope=random.choice([None, "s", "nowhere"]),
        any_scope=random.choice([True, False]),
        status=random.choice(_STATUSES),
        limit=random.randint(1, 4),
    )


def _claim(random: Random, spot: Spot) -> Request:
    return Claim(
        *spot,
        nonce=random.choice("abcdefgh"),
        fingerprint=random.choice(_FINGERPRINTS),
        on_expired=random.choice(_ON_EXPIRED),
        max_attempts=random.choice([None, None, 1, 2, 3]),
        label=random.choice(["", "label"]),
        reference=random.choice(["", "reference"]),
        lease=random.randint(1, 2),
        ttl=random.randint(0, 2),
    )


def _renew(random: Random, spot: Spot) -> Request:
    return Renew(*spot, **_UNPROVED, lease=random.randint(1, 2), ttl=random.randint(0, 2))


def _note(random: Random, spot: Spot) -> Request:
    noted = random.choice([b"", b"n", b"noted"])
    return Note(*spot, **_UNPROVED, noted=noted, revision=random.randint(-1, 2))


def _settle(random: Random, spot: Spot) -> Request:
    return Settle(
        *spot,
        **_UNPROVED,
        status=random.choice(_ENDS),
        result=random.choice(_BLOBS),
        error=random.choice(_BLOBS),
        ttl=random.randint(0, 2),
    )


def _release(random: Random, spot: Spot) -> Request:
    return Release(
        *spot,
        **_UNPROVED,
        error=random.choice(_BLOBS),
        uncertain=random.choice([False, True]),
        hold=random.choice([False, False, True]),
        unused=random.choice([False, False, True]),
        counted=random.choice([False, False, True]),
        bare_ttl=random.randint(0, 2),
        ttl=random.randint(0, 2),
    )


def _resolve(random: Random, spot: Spot) -> Request:
    return Resolve(
        *spot,
        token=0,
        status=random.choice(_DECISIONS),
        result=random.choice(_BLOBS),
        error=random.choice(_BLOBS),
        ttl=random.randint(0, 2),
    )


def _forget(random: Random, spot: Spot) -> Request:
    return Forget(*spot, token=0, force=random.choice([False, True]))


# What is frequent here is what leads to more states.
_MAKERS: Final = (
    *[_claim] * 5,
    *[_renew, _note, _release] * 2,
    *[_settle, _resolve, _forget],
)


STEPS: Final = 30
LONGEST: Final = 5_000_000
"""The longest wait in microseconds for a store with a clock that cannot be moved."""

EVERYTHING: Final = 10_000

MANY: Final = 30
WHAT: Final = ("ask", "ask", "ask", "ask", "ask", "again", "wait")


class Time(NamedTuple):
    """The store's clock, how to let its time pass, and how long things last."""

    clock: Callable[[], int]
    tick: Callable[[int], None]
    lease: int
    ttl: int

    @property
    def lives(self) -> tuple[int, int, int]:
        """The lifetimes that a request may ask for."""
        return self.ttl, 1, 10 * self.ttl


def check_against_machine(store: Store, time: Time, *, purges: bool = True) -> None:
    """Check that the store answers every random run as the machine does.

    No other test may use the store at the same time.
    """
    run_state_machine_as_test(
        lambda: StoreModel(store, time, purges=purges),  # type: ignore[arg-type]  # documented: a factory
        settings=settings(
            deadline=None,
            stateful_step_count=STEPS,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


class StoreModel(RuleBasedStateMachine):
    """A store beside the machine. They must agree after each request."""

    def __init__(self, store: Store, time: Time, *, purges: bool) -> None:
        super().__init__()
        self.store = store
        self.time = time
        self.purges = purges
        self.expected = Reference(time.clock)
        self.granted = [(1, "a")]  # never granted, but an old proof must always be at hand
        self.last: Request | None = None

    @initialize(random=st.randoms(use_true_random=True))
    def start(self, random: Random) -> None:
        """Remove what the run before this one left, and send some requests."""
        for record in self.store.scan(Scan(limit=EVERYTHING)).records:
            self.store.forget(Forget(record.scope, record.key, token=record.token, force=True))
        self.store.purge(0, EVERYTHING)
        if not self.purges:  # the server does, by the millisecond: nothing of it is left after one
            self.time.tick(1000)
        self._much_happens(random)

    # The workers

    @rule(random=st.randoms(use_true_random=False))
    def happen(self, random: Random) -> None:
        """Send a request, send one again, or let time pass."""
        self._happen(random)

    @rule(random=st.randoms(use_true_random=True))
    def much_happens(self, random: Random) -> None:
        """Do the same many times; here Hypothesis chooses the seed and nothing more."""
        self._much_happens(random)

    # The housekeeping

    @rule(grace=st.sampled_from([0, 1, 500_000]), limit=st.sampled_from([1, 2, 100]))
    def purge(self, grace: int, limit: int) -> None:
        """Purge at most `limit` expired records. The store chooses which ones go first."""
        due = self.expected.purgeable(grace)
        first = self.store.purge(grace, limit)
        assert first == (min(limit, len(due)) if self.purges else 0)
        assert self.store.purge(grace, EVERYTHING) == (len(due) - first if self.purges else 0)
        if self.purges:  # else the server removes it later, and its token counts until then
            for place in due:
                self.expected.put(place, None)

    @rule(random=st.randoms(use_true_random=True))
    def scan(self, random: Random) -> None:
        """List the records page after page, and compare each page."""
        ask = random_scan(random)
        while True:
            page = self.store.scan(ask)
            assert page == self.expected.scan(ask)
            if page.after is None:
                return
            ask = replace(ask, after=page.after)

    @invariant()
    def they_agree(self) -> None:
        """Check that every key reads as the machine left it."""
        for spot in SPOTS:
            assert self.store.get(*spot) == self.expected.get(*spot), spot

    # Helpers

    def _much_happens(self, random: Random) -> None:
        for _ in range(MANY):
            self._happen(random)

    def _happen(self, random: Random) -> None:
        what = random.choice(WHAT)
        if what == "wait":
            self._wait(random)
            return
        ask = self.last
        if what == "ask" or ask is None:
            age = random.randrange(len(self.granted))
            ask = self.last = self._complete(random_request(random), random_proof(random), age)
        self._send(ask)

    def _wait(self, random: Random) -> None:
        """Move the time to just before, exactly at, or just past a moment that matters."""
        record = self.store.get(*random_spot(random))
        if record is not None:
            moment = random.choice([record.lease_end, record.lease_end, record.expires])
            wait = moment + random.choice([-1, 0, 1]) - self.time.clock()
            if wait > 0 and (wait <= LONGEST or hasattr(self.time.clock, "tick")):
                self.time.tick(wait)

    def _complete(self, ask: Request, who: Who, age: int) -> Request:
        """Return the request with a proof, a revision and durations that fit the moment.

        The proof is the one in the record, the one of an old attempt, or one part of each.
        """
        record = self.expected.records.get(_place(ask))
        token, nonce = self.granted[age]
        if record is not None:
            token = record.token if who in ("owner", "old nonce") else token
            nonce = record.nonce if who in ("owner", "old token") else nonce
        fitting: dict[str, object] = {}
        if not isinstance(ask, Claim):
            fitting["token"] = token
        if isinstance(ask, Owned):
            fitting["nonce"] = nonce
        if isinstance(ask, Note):
            fitting["revision"] = (record.revision if record else 0) + ask.revision
        if isinstance(ask, (Claim, Renew)):
            fitting["lease"] = ask.lease * self.time.lease
        if isinstance(ask, Release):
            fitting["bare_ttl"] = self.time.lives[ask.bare_ttl]
        if isinstance(ask, (Claim, Renew, Release, Settle, Resolve)):
            fitting["ttl"] = self.time.lives[ask.ttl]
        return replace(ask, **fitting)

    def _send(self, ask: Request) -> None:
        """Send the request. Check the answer and the record against the machine at that time."""
        before = self.expected.records.get(_place(ask))
        earliest = self.time.clock()
        states = [before]
        if before is not None and not self.purges and machine.expired(before, earliest):
            states.append(None)  # the server may have removed it by now, or be about to
        answer = getattr(self.store, type(ask).__name__.lower())(ask)
        after = self.store.get(ask.scope, ask.key)
        moments = self._moments(answer, after, earliest)
        outcomes = [RULES[type(ask)](state, ask, at) for state in states for at in moments]
        same = [one for one, told in outcomes if told == answer and self._living(one) == after]
        assert same, f"{ask}\n was told {answer}\n and left {after}\n instead of {outcomes}"
        self.expected.put(_place(ask), same[0])
        if isinstance(answer, Granted) and (proof := _proof(answer.record)) not in self.granted:
            self.granted.append(proof)

    def _moments(self, answer: Answer | Verdict, after: Record | None, earliest: int) -> list[int]:
        """Return when the store may have decided. There is one moment if the clock stands still."""
        latest = self.time.clock()
        if isinstance(answer, Answer):
            assert earliest <= answer.now <= latest, f"{answer} does not tell the time"
            return [answer.now]
        told = [after.updated] if after is not None and earliest <= after.updated <= latest else []
        return [*told, earliest, latest]

    def _living(self, record: Record | None) -> Record | None:
        expired = record is not None and machine.expired(record, self.time.clock())
        return None if expired else record


def _proof(record: Record) -> tuple[int, str]:
    return record.token, record.nonce


def _place(ask: Request) -> Place:
    return ask.scope or "", ask.key
