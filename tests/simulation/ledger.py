"""What really happened: every effect, counted by somebody who is no part of the library."""

from typing import TYPE_CHECKING, Any

from oncekey.core.record import Record
from oncekey.core.requests import Release
from tests.simulation.oracle import must
from tests.simulation.plan import KeyPlan

FRESH_FOR = 1_400_000
"""Microseconds for which an answer of the store may be used to refuse others, and its way back."""

if TYPE_CHECKING:
    from tests.simulation.caller import Try
    from tests.simulation.process import Process
    from tests.simulation.world import World


class Effect:
    """One time that something happened outside."""

    __slots__ = ("at", "by", "payload", "token", "value")

    def __init__(self, at: int, by: "Try", token: int, value: object) -> None:
        self.at = at
        self.by = by
        self.payload = by.payload
        self.token = token
        self.value = value


class Story:
    """All that happened under one key."""

    def __init__(self, world: "World", number: int, plan: KeyPlan) -> None:
        self.world = world
        self.number = number
        self.plan = plan
        self.runs = 0
        self.effects: list[Effect] = []
        self.largest_token = 0
        self.settled_as: bytes | None = None
        self.is_settled = False
        self.expires = 0
        self.amnesia = False
        """The store has lost something of this key, or somebody made it forget."""
        self.over = False
        """The life of a settled record has ended, and the key was used again."""
        self.unwritable = False
        """The store refuses what is said of the end of its attempts."""
        self.forgotten_in: Process | None = None
        """The process in which somebody forgot what was settled."""
        self.forgotten_at = 0
        self.retries = 0
        """How often a human said that it may run again."""
        self.inside: set[Try] = set()
        """The calls whose code runs or hangs."""
        self.busy_until = 0
        """Until when the lease of some attempt was alive."""
        self.kept_until = 0
        """In the store's time: how long its record must be remembered at least."""
        self.doubted = False
        """Whether the record that must be remembered says that something may have happened."""
        self.spent: tuple[str, int] = ("", 0)
        """The nonce that was given back last, and until when it must be granted to nobody."""
        self.fence = 0
        self.done: dict[str, Effect] = {}
        """By the key that the effect was given: what a keyed service has done."""

    # What the store says

    def granted(self, record: Record) -> None:
        call = self.world.whose(record.nonce)
        if call is not None:
            call.token = record.token

    def settled(self, record: Record) -> None:
        self.is_settled = True
        self.expires = record.expires
        self.kept_until, self.doubted = 0, False
        if record.status == "completed":
            self.settled_as = record.result

    def released(self, ask: Release) -> None:
        """A definite end says that nothing happened: that must be true."""
        call = self.world.whose(ask.nonce)
        if call is None or ask.uncertain or ask.unused or self.plan.mode != "bare":
            return
        must(
            not any(effect.by is call for effect in self.effects),
            "an attempt whose effect may have happened does not count as not done",
            ask,
        )

    def begin_again(self) -> None:
        """A record's life was over: what follows is another operation, if it was about one."""
        self.over = self.over or self.is_settled or self.doubted
        self.is_settled = False
        self.settled_as = None

    def forget(self, *, on_purpose: bool = False) -> None:
        """The store knows less than it did."""
        self.amnesia = True
        self.over = self.over or on_purpose
        self.forgotten_in = None
        self.is_settled = False
        self.settled_as = None
        record = self.world.store.records.get((self.plan.scope, self.plan.key))
        self.largest_token = 0 if record is None else record.token
        if record is not None and record.status in ("completed", "failed"):
            # A fail-over has brought it back: its life is that of the record, and may be over.
            self.settled(record)

    # Effects

    def happen(self, call: "Try", token: int) -> object:
        """The effect happens, and this is what it gives."""
        value = self._value(call)
        self.effects.append(Effect(self.world.hub.now, call, token, value))
        self.world.tell("effect", call.payload, value, token)
        self._check_count(call.payload)
        if call.cut_in == "effect":
            call.cut_in = ""
            self.world.hub.at(self.world.hub.now + 1, call.cut_off)
        return value

    def _value(self, call: "Try") -> object:
        kind = self.plan.value
        if kind == "dict":
            return {"payload": call.payload, "serial": len(self.effects)}
        if kind == "unkeepable":
            return object()
        return {"none": None, "zero": 0, "empty": ""}[kind]

    def of(self, payload: str) -> list[Effect]:
        return [effect for effect in self.effects if effect.payload == payload]

    def undo(self, effect: Effect) -> None:
        """The database that held it went back to an earlier state."""
        self.effects.remove(effect)
        self.world.seen.add("undone with its record")

    def _check_count(self, payload: str) -> None:
        effects = self.of(payload)
        if len(effects) < 2:
            return
        must(self.plan.mode != "keyed", "a keyed effect happens once", payload, len(effects))
        if self.over:
            return
        must(self.plan.mode != "atomic", "an atomic effect happens once", payload, len(effects))
        if self.amnesia:
            return
        must(
            sum(not self._excused(one.by) for one in effects) <= 1 + self.retries,
            "an effect happens again only after an end that nobody could tell",
            payload,
            len(effects),
            self.plan,
        )
        self.world.seen.add("bare effect doubled after a crash")

    def _excused(self, call: "Try") -> bool:
        """Whether the policy allowed another attempt after this one."""
        if call.unprotected or call.overdue or self.unwritable:
            return True
        if self.plan.terms.hold or self.plan.reconciles:
            # Refused, or asked first: only a zombie that slept past the quiet period remains.
            return self.plan.reconciles and (call.process.slept or call.hung)
        died = call.process.dead or call.process.trouble_at >= call.began
        return died or call.cut or call.doubtful or not call.renews

    # Runs and refusals

    def check_alone(self, call: "Try") -> None:
        """Who may not ask the store runs only where nobody else is known to run here."""
        if self.amnesia:
            return
        record = self.world.store.records.get((self.plan.scope, self.plan.key))
        for other in self.inside:
            if other.process is not call.process or other.life.ticket.lost:
                continue
            owns = record is not None and self.world.whose(record.nonce) is other
            if owns and record is not None and record.status != "running":
                continue  # which the store has said, and nobody here relies on the run any more
            beside = owns or other.unprotected
            if not call.unprotected:  # the other should have seen its flight, or it the other's
                focus, later = self.world.plan.focus, call.began > other.ran_at
                beside = other.unknown and (focus == "beside" or (focus == "hides" and later))
            must(
                not beside,
                "nothing runs without the store beside a run that is known in its process",
                record,
            )
        for other in self.world.tries if call.unprotected else ():
            asks = other.process is call.process and other.story is self and not other.over
            # Who does not wait asks apart from those who were there, and is not known to others.
            known = asks and (self.plan.terms.wait > 0 or other.first)
            must(
                not known or other.ran or other.torn or other.asks_since >= call.began,
                "nothing runs without the store beside a call that asked it before",
                record,
            )

    def check_busy(self, call: "Try") -> None:
        """A refusal as "in progress" is no older than a moment: there is, or was, a lease."""
        world, process = self.world, call.process
        if world.clock_odd or self.amnesia or self.plan.reconciles or self.plan.terms.fail_open:
            return
        if self.unwritable:
            return
        now = world.hub.now
        record = world.store.records.get((self.plan.scope, self.plan.key))
        if record is not None and record.status == "running":
            if record.lease_end > world.store_time():
                return
            self.busy_until = max(self.busy_until, record.lease_end - world.store_offset)
        since = max(self.busy_until, process.trouble_at, process.refused_at, process.paused_until)
        for other in world.tries:  # whose flight is taken for one that goes on, for a moment
            if other.torn and other.process is process:
                since = max(since, other.ended)
        must(
            now - since <= FRESH_FOR,
            "nobody is refused when no attempt has had a lease for more than a moment",
            record,
            now,
        )

    # Answers

    def check_recorded(self) -> None:
        """A duplicate hears what the store knows, unless nobody insists on the store.

        What `reconcile` has found is told at once: whoever asks again finds the same.
        """
        if not (self.plan.terms.fail_open or self.plan.reconciles or self.amnesia or self.over):
            must(self.is_settled, "a duplicate is answered with what is recorded")

    def check_not_forgotten(self, call: "Try") -> None:
        """Who asks where somebody has forgotten the record hears nothing of it any more."""
        if call.process is not self.forgotten_in or not 0 < self.forgotten_at < call.began:
            return
        if not (self.plan.terms.fail_open or self.plan.reconciles or self.world.clock_odd):
            must(self.is_settled, "what was forgotten here answers nobody here")

    def check_answer(self, call: "Try", value: Any) -> None:
        """The answer is that of the caller's own operation, which has happened."""
        kind = self.plan.value
        expected: Any
        if kind == "dict":
            must(isinstance(value, dict), "an answer is a result", value)
            must(value["payload"] == call.payload, "nobody gets another's answer", value)
        elif kind != "unkeepable":
            expected = {"none": None, "zero": 0, "empty": ""}[kind]
            must(value == expected and type(value) is type(expected), "a result comes back", value)
        if self.amnesia and self.plan.mode != "keyed":
            return
        effects = self.of(call.payload)
        must(effects, "what is answered has happened", call.payload, value)
        if kind != "dict" or self.over:
            return
        if self.plan.mode == "bare":
            if call.unprotected or call.told_late:
                return
            known = [one.value for one in effects]
            must(value in known, "an answer is that of an effect", value, known)
        else:
            must(value == effects[0].value, "everybody gets the same answer", value)
