"""Those who call: each asks until it is answered, gives up, or is cut off."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncekey.core.call import Call
from oncekey.core.codec import PLAIN
from oncekey.engine import run, run_async
from oncekey.engine.breaker import OPENS_AFTER
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    KeyReusedError,
    LeaseLostError,
    NotRecordedError,
    OutcomeUnknownError,
    RememberedError,
    ResultNotKeptError,
    StoreError,
)
from tests.simulation.dice import mix
from tests.simulation.handler import DOUBTS, FencedError, handle, reconciler
from tests.simulation.hub import NEVER, Activity, ClosedWaitsError, DeadError
from tests.simulation.line import FORBIDDEN, ForbiddenError
from tests.simulation.oracle import ViolationError, must
from tests.simulation.plan import DAY, Caller, Declined
from tests.simulation.tear import Tear

if TYPE_CHECKING:
    from tests.simulation.ledger import Story
    from tests.simulation.process import Process
    from tests.simulation.world import World

FINAL = frozenset({"answered", "failed", "reused", "not kept"})
RETRY_ALWAYS = 800_000


class Interrupted:
    """The plain codec, during which a signal may arrive once."""

    typed = False

    def __init__(self, call: "Try") -> None:
        self._call = call

    def encode(self, value: object) -> bytes:
        if self._call.interrupted:
            self._call.interrupted = False
            self._call.cut = self._call.gone = True
            self._call.world.seen.add("interrupted")
            raise KeyboardInterrupt
        return PLAIN.encode(value)

    def decode(self, data: bytes) -> Any:
        return PLAIN.decode(data)


def _nothing(_: object) -> None:
    return


class Try:
    """One call of one caller in one process."""

    __slots__ = (
        "activity",
        "asks_since",
        "began",
        "cut",
        "cut_in",
        "cut_off",
        "doubtful",
        "ended",
        "finished",
        "first",
        "given_up",
        "given_up_by",
        "gone",
        "hung",
        "interrupted",
        "life",
        "number",
        "outcome",
        "over",
        "overdue",
        "payload",
        "process",
        "ran",
        "ran_at",
        "recorded",
        "renewed_at",
        "renews",
        "story",
        "superseded",
        "tear",
        "tear_in",
        "token",
        "told_late",
        "torn",
        "unprotected",
        "world",
    )

    activity: Activity
    given_up_by: Callable[[], None]

    def __init__(self, story: "Story", process: "Process", payload: str) -> None:
        self.world = story.world
        self.story = story
        self.process = process
        self.payload = payload
        self.token = 0
        self.began = self.world.hub.now
        self.over = False
        self.ended = 0
        self.outcome = "died"
        self.cut = self.doubtful = self.ran = self.unprotected = self.told_late = False
        self.recorded = False
        self.overdue = False
        self.interrupted = False
        self.cut_in = ""
        """The verb in the middle of which `cut_off` is called."""
        self.cut_off: Callable[[object], None] = _nothing
        self.gone = False
        """Cut off in the library's own code, where nothing is left but to let the lease end."""
        self.hung = self.given_up = self.torn = False
        self.finished = False
        """Whether the user's code came to its end."""
        self.life: Any = None
        """The run of the library, once the user's code has begun."""
        self.tear, self.tear_in = 0, ""
        self.number = 0
        self.renewed_at = self.ran_at = 0
        self.asks_since = NEVER
        """Since when it claims, and no answer has told anybody here whose the record is."""
        self.first = False
        """Whether nobody else was there when it began to: all who come later know of it."""
        self.superseded = False
        """Whether another call of its process was told: nobody waits for this one any more."""
        terms = story.plan.terms
        self.renews = terms.heartbeat and terms.max_run is None

    @property
    def unknown(self) -> bool:
        """Whether it runs without a store that has never heard of it."""
        return self.unprotected and not self.token

    @property
    def can_be_torn(self) -> bool:
        """Whether a signal may come now: not where everything is well again, nor at the end."""
        return not (self.world.healed or self.over or self.cut or self.process.dead)

    def torn_by_a_signal(self, where: str) -> BaseException:
        """What the handler of the signal raises."""
        world = self.world
        world.injected.append(("tear", self.number))
        world.tell("signal in", self.process.index, where)
        self.torn = self.cut = self.gone = True
        world.seen.add("torn while or after it ran" if self.ran else "torn before it ran")
        return TimeoutError() if self.tear % 3 == 0 else KeyboardInterrupt()

    def hang(self) -> None:
        """The user's code hangs, and its caller asks no longer."""
        self.hung = self.given_up = True
        self.world.injected.append(("hang", self.story.number))
        self.world.seen.add("hung")
        self.world.tell("hangs in", self.process.index)
        self.given_up_by()

    def main(self, call: Call, in_coroutine: bool) -> None:
        """Make the call; what became of it is its outcome."""
        hub, process = self.world.hub, self.process
        process.use()
        try:
            if self.tear:
                with Tear(self, self.tear, self.tear_in):
                    made = self._perform(call, in_coroutine)
            else:
                made = self._perform(call, in_coroutine)
        except BaseException as error:  # noqa: BLE001 - sorted out there
            self.outcome = self._failed(error)
            error.__traceback__ = None  # what is refused knows its frames, and they know it
        else:
            self.outcome = "answered"
            if made.duplicate:
                self.world.seen.add("answered with the first result")
                self.story.check_recorded()
                self.story.check_not_forgotten(self)
            self.story.check_answer(self, made.value)
        self.over, self.ended = True, hub.now
        if process.breaker.open:
            self.world.seen.add("breaker opened")
            if process.breaker._refusal:
                self.world.seen.add("nothing was claimed while nothing was recorded")
                refused = max(process.refused_at, process.trouble_at) >= 0
                must(refused, "a store that refuses nothing records what it is told")
            else:
                reason = process.out_of_reach >= OPENS_AFTER
                must(reason, "a store that answers, if only to refuse, is in reach")

    def _perform(self, call: Call, in_coroutine: bool) -> Any:
        process = self.process
        if in_coroutine:
            return self.world.hub.drive(
                run_async.perform(process.engine_async, call, handle, (self,), {}, active=True)
            )
        return run.perform(process.engine, call, handle, (self,), {}, active=True)

    def _failed(self, error: BaseException) -> str:
        seen = self.world.seen
        if isinstance(error, DeadError):
            raise error
        if isinstance(error, (ViolationError, ClosedWaitsError)):
            must(isinstance(error, ViolationError), "who is being closed waits for nothing")
            raise error
        if isinstance(error, KeyReusedError):
            return "reused"
        if isinstance(error, (Declined, RememberedError)):
            if not self.ran:
                seen.add("kept failure raised again")
                return "failed"
            terms = self.story.plan.terms
            return "failed" if terms.keep or terms.keep_all else "declined"
        if isinstance(error, ResultNotKeptError):
            kept = self.story.plan.value != "unkeepable"
            must(not kept, "a result that can be kept is kept", error)
            seen.add("result not kept")
            return "not kept"
        return self._refused(error)

    def _refused(self, error: BaseException) -> str:
        for kind, word in _REFUSALS:
            if isinstance(error, kind):
                if kind is InProgressError:
                    self.story.check_busy(self)
                self.told_late = kind is NotRecordedError
                self.world.seen.add(word)
                return word
        if isinstance(error, ConfigurationError) and str(error) == FORBIDDEN:
            return "forbidden"
        if isinstance(error, (*DOUBTS, ExceptionGroup)) or self.cut:
            return "cut off" if self.cut else "in doubt"
        raise ViolationError(f"a call raised what it must not raise: {error!r}") from error


_REFUSALS: tuple[tuple[type[BaseException], str], ...] = (
    (InProgressError, "in progress"),
    (OutcomeUnknownError, "outcome unknown"),
    (LeaseLostError, "lease lost"),
    (NotRecordedError, "told late"),
    (StoreError, "store trouble"),
    (ForbiddenError, "forbidden"),
    (FencedError, "fenced"),
)


class Asking:
    """A caller at work: one try after the other."""

    def __init__(self, world: "World", number: int, plan: Caller, last: bool) -> None:
        self.world = world
        self.number = number
        self.plan = plan
        self.last = last
        """Whether it comes after everything has healed, and asks until there is an answer."""
        self.tries = 0
        self.outcome = ""
        self.before: Try | None = None
        """The try before this one."""

    def next(self, _: object = None) -> None:
        """One more call, in some process that lives."""
        world, plan = self.world, self.plan
        bits = mix(world.seed, 100 + self.number, self.tries)
        living = [one for one in world.processes if not one.dead and not one.stopping]
        if not living:
            world.hub.at(world.hub.now + 100_000, self.next)
            return
        self.tries += 1
        process = living[bits % len(living)]
        before = self.before
        if before is not None and before.hung:
            if bits >> 56 & 1 and before.process in living:
                process = before.process
            same = process is before.process
            world.seen.add(
                f"asked again after it hung, in {'its own' if same else 'another'} process"
            )
        story = world.stories[plan.key]
        call = Try(story, process, plan.payload)
        call.interrupted = bool(plan.cut) and bits >> 50 & 7 == 0 and not self.last
        world.tries.append(call)
        self.before, call.given_up_by = call, lambda: self._go_on("hung")
        if plan.tear and self.tries == 1 and not world.masked(("tear", self.number)):
            call.tear, call.tear_in, call.number = plan.tear, plan.tear_in, self.number
        colour = world.plan.colours
        in_coroutine = colour == "async" or (colour == "both" and bool(bits >> 20 & 1))
        asked = Call(
            scope=story.plan.scope,
            key=story.plan.key,
            terms=story.plan.terms,
            fingerprint=f"1:{plan.payload}",
            codec=Interrupted(call) if call.interrupted else PLAIN,  # type: ignore[arg-type]  # has what it takes
            reconcile=reconciler(story, plan.payload) if story.plan.reconciles else None,
        )
        call.activity = world.hub.start(process, lambda: call.main(asked, in_coroutine))
        call.activity.ident = -process.index - 1 if in_coroutine else len(world.tries)
        call.activity.owner = call
        world.tell("caller", self.number, "calls in", process.index, asked.fingerprint)
        call.activity.when_over.append(lambda: self._over(call))
        chosen = self.tries == 1 + (bits >> 24) % 2 or world.plan.focus == "gives way"
        if plan.cut and chosen and not self.last:
            kind = plan.cut if in_coroutine else "exit"
            if plan.cut_in:
                call.cut_in, call.cut_off = plan.cut_in, lambda _: self._cut((call, kind))
            else:
                world.hub.at(world.hub.now + plan.cut_after, self._cut, (call, kind))

    def _cut(self, what: tuple[Try, str]) -> None:
        call, kind = what
        if call.over or call.process.dead or self.world.masked(("caller", self.number)):
            return
        self.world.injected.append(("caller", self.number))
        self.world.seen.add({"cancel": "cancelled", "exit": "exited", "close": "closed"}[kind])
        if self.plan.cut_in:
            self.world.seen.add("cut off in a verb")
        call.cut = True
        if kind == "close":
            call.activity.closed = True
            self.world.hub.throw(call.activity, GeneratorExit())
            call.over, call.ended, call.outcome = True, self.world.hub.now, "cut off"
            return
        error = asyncio.CancelledError() if kind == "cancel" else SystemExit()
        self.world.hub.throw(call.activity, error)

    def _over(self, call: Try) -> None:
        world = self.world
        if not call.over:
            call.over, call.ended = True, world.hub.now
        self.outcome = call.outcome
        if call.process.ends_soon and not call.process.dead:
            world.stop(call.process)
        world.tell("caller", self.number, "in", call.process.index, call.outcome)
        if not call.given_up:
            self._go_on(call.outcome)

    def _go_on(self, outcome: str) -> None:
        world = self.world
        if outcome in FINAL:
            world.answered()
        elif self.last:
            if outcome == "outcome unknown":
                world.resolve(self.plan.key)
            world.hub.at(world.hub.now + RETRY_ALWAYS, self.next)
        elif self.tries < self.plan.tries and not world.healed:
            pause = self.plan.backoff
            if self.plan.leap and self.tries % 2:
                pause = self.plan.leap
                if world.hub.now + pause >= world.plan.heal_at:
                    world.answered()
                    return
                world.seen.add(f"came back after {'a day' if pause > DAY else 'hours'}")
            world.hub.at(world.hub.now + pause, self.next)
        else:
            world.answered()
