"""The user's code of the simulated world: notes, an effect in one of three modes, an answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncekey.attempt import BaseAttempt, attempt_of
from oncekey.core.decide import Done, NotDone
from oncekey.core.record import Record
from oncekey.engine.run_base import running
from oncekey.errors import ConfigurationError, LeaseLostError, StoreError
from tests.simulation.dice import mix
from tests.simulation.hub import MICRO, DeadError
from tests.simulation.ledger import Effect, Story
from tests.simulation.line import ForbiddenError
from tests.simulation.plan import Declined, TransportError

if TYPE_CHECKING:
    from tests.simulation.caller import Try

DOUBTS = (TimeoutError, ConnectionError, TransportError)


class FencedError(Exception):
    """A keyed service has seen a larger token, and does nothing for a smaller one."""


def handle(call: "Try") -> object:
    """What the protected function does."""
    story, plan = call.story, call.story.plan
    life = running.get()
    assert life is not None
    attempt = attempt_of(life)  # type: ignore[call-overload]  # of either colour
    story.runs = run = story.runs + 1
    call.ran, call.ran_at = True, story.world.hub.now
    call.unprotected = not attempt.protected
    bits = mix(story.world.seed, 40 + story.number, run)
    hangs = run == plan.hangs and not story.world.masked(("hang", story.number))
    call.life = life
    story.check_alone(call)
    story.inside.add(call)
    try:
        value = _work(call, attempt, run, bits, hangs)
    finally:
        story.inside.discard(call)
    call.finished = True
    return value


def _work(call: "Try", attempt: Any, run: int, bits: int, hangs: bool) -> object:
    plan, hub = call.story.plan, call.world.hub
    if plan.notes:
        finish(attempt.note(began=run), hub)
    hub.wait(plan.before * MICRO)
    if bits & 0xFFFF < plan.errors:
        call.world.seen.add("declined")
        raise Declined(run)
    if plan.notes > 1:
        finish(attempt.note(again=run), hub)
    if hangs and not plan.hangs_behind:
        _hang(call)
    value = (_step if plan.stepped else perform_effect)(call, attempt, bits)
    if hangs and plan.hangs_behind:
        _hang(call)
    hub.wait(plan.after * MICRO)
    return value


def _hang(call: "Try") -> None:
    """Whoever waits for the call gives it up; perhaps it goes on much later all the same."""
    call.hang()
    seconds = call.story.plan.hangs_for * MICRO
    call.world.hub.wait(seconds or None)
    call.world.seen.add("a hung run went on")


def _step(call: "Try", attempt: BaseAttempt, bits: int) -> object:
    if "charge" in attempt.record.steps:
        call.world.seen.add("step skipped")
    try:
        return finish(
            attempt.step("charge", lambda: perform_effect(call, attempt, bits)),  # type: ignore[attr-defined]  # of either colour
            call.world.hub,
        )
    except (StoreError, LeaseLostError, ConfigurationError, ForbiddenError):
        # The step may be done and could not be noted: whoever comes next must know of the doubt.
        call.doubtful = True
        raise


def finish(value: Any, hub: Any) -> Any:
    """What the attempt of either colour returns."""
    return hub.drive(value) if hasattr(value, "send") else value


# The three modes


def perform_effect(call: "Try", attempt: BaseAttempt, bits: int) -> object:
    """The effect has happened, or it raises; in doubt it may have happened all the same."""
    world, plan = call.world, call.story.plan
    if call.process.dead:
        raise DeadError
    # The token of a run without the store comes from the clock of this process: not for a fence.
    token = attempt.token if attempt.protected else 0
    if plan.mode == "atomic":
        return _stage(call, token, attempt)
    act = _keyed(call, token, attempt) if plan.mode == "keyed" else _bare(call, token)
    if bits >> 16 & 0xFFFF >= plan.doubts or world.healed:
        return act()
    call.doubtful = True
    world.seen.add("doubtful effect")
    error: Exception = DOUBTS[(bits >> 32) % len(DOUBTS)]()
    if bits >> 40 & 7 == 0:
        error = ExceptionGroup("two of its parts failed", [ValueError(), error])
    elif bits >> 40 & 7 == 1 and call.activity.ident < 0:
        error = ExceptionGroup(
            "one of its tasks failed, and the others were cut off", [ValueError()]
        )
    fate = (bits >> 36) % 3
    if fate == 0:
        act()
    elif fate == 1:
        late = min(world.plan.lateness, plan.terms.lease // 2)
        world.hub.at(world.hub.now + late, lambda _: _ignoring_fences(act))
    world.hub.wait(0.05)
    raise error


def _ignoring_fences(act: Callable[[], object]) -> None:
    try:
        act()
    except FencedError:
        return


def _bare(call: "Try", token: int) -> Callable[[], object]:
    return lambda: call.story.happen(call, token)


def _keyed(call: "Try", token: int, attempt: BaseAttempt) -> Callable[[], object]:
    story, name = call.story, attempt.downstream_key("charge")

    def act() -> object:
        done = story.done.get(name)
        if done is not None:
            call.world.seen.add("keyed effect asked for again")
            return done.value
        if token < story.fence:
            call.world.seen.add("fenced")
            raise FencedError
        story.fence = token
        value = story.happen(call, token)
        story.done[name] = story.effects[-1]
        return value

    return act


def _stage(call: "Try", token: int, attempt: BaseAttempt) -> object:
    """The effect is written in the transaction that settles the record, or not at all."""
    story = call.story
    value = story._value(call)
    made: list[Effect] = []

    def commit() -> None:
        story.effects.append(Effect(call.world.hub.now, call, token, value))
        made.append(story.effects[-1])
        story._check_count(call.payload)
        call.world.seen.add("committed with its record")

    story.world.store.staged[token, attempt.record.nonce] = (
        commit,
        lambda: story.undo(made.pop()),
    )
    return value


def reconciler(story: Story, payload: str) -> Callable[[Record], object]:
    """Asks the ledger, as somebody would ask a bank."""

    def reconcile(record: Record) -> object:
        hub = story.world.hub
        hub.wait(0.005)
        effects = story.of(payload)
        if effects and story.plan.value != "unkeepable":
            story.world.seen.add("reconciled: done")
            return Done(effects[0].value)
        if effects:
            story.world.seen.add("reconciled: done")
            return Done(None)
        story.world.seen.add("reconciled: not done")
        return NotDone()

    return reconcile
