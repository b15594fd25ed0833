"""What must be so whenever the store answers, told without the machine's own functions.

The walk of `tests/unit/core/test_machine_exploration.py` proves the machine on its own. Here the
same promises, and those about attempts that the engines make, are watched while everything runs.
"""

from typing import TYPE_CHECKING, Any

from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Busy,
    Claim,
    Forget,
    Granted,
    Held,
    Mismatch,
    Note,
    Release,
    Renew,
    Replay,
    Request,
    Resolve,
    Settle,
    Spent,
    Verdict,
)
from tests.simulation.plan import DAY, HOUR, MINUTE
from tests.simulation.stage import STAGE

if TYPE_CHECKING:
    from tests.simulation.world import World

LEFT_BEHIND = 2_000_000
"""Microseconds after which a claim that nobody needs any more must have been given back."""


class ViolationError(AssertionError):
    """A promise was broken."""


def must(kept: object, promise: str, *facts: object) -> None:
    """Raise when the promise is not kept."""
    if not kept:
        broken = ViolationError(": ".join([promise, *map(str, facts)]))
        if STAGE.hub.broken is None:  # even if the code under test swallows it
            STAGE.hub.broken = broken
        raise broken


class Oracle:
    """Watches one store."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def __call__(
        self,
        before: Record | None,
        ask: Request,
        answer: Any,
        after: Record | None,
        now: int,
    ) -> None:
        if ask.key.startswith("oncekey."):
            return  # the trial of a breaker, which is about no call
        alive = before is not None and not 0 < before.expires <= now
        kind = type(ask)
        if before is not None and before.status == "running":
            story = self._world.story(ask)
            end = min(now, before.lease_end) - self._world.store_offset
            story.busy_until = max(story.busy_until, end)
        if kind is Claim:
            self._claim(before if alive else None, before, ask, answer, after, now)  # type: ignore[arg-type]  # told by its type
        elif kind is Resolve:
            self._resolve(before, ask, answer, after)
        elif kind is Forget:
            _forgotten(before if alive else None, ask, answer, after)
        else:
            self._write(before if alive else None, ask, answer, before, after, now)

    # Claims

    def _claim(  # noqa: PLR0917 - all that is known of one answer
        self,
        alive: Record | None,
        before: Record | None,
        ask: Claim,
        answer: Answer,
        after: Record,
        now: int,
    ) -> None:
        world = self._world
        kind = type(answer)
        must(answer.now == now, "an answer tells the store's time", answer)
        must(answer.record is after or answer.record == after, "an answer tells the record", answer)
        if kind is Granted:
            if alive is not None and alive.status == "running" and alive.nonce == ask.nonce:
                must(after == before, "a claim that is repeated changes nothing", before, after)
                world.seen.add("granted again")
                call = world.whose(ask.nonce)
                if call is not None and alive.lease_end <= now:
                    # See docs/simulation.md, "What it found".
                    call.overdue = True
                    world.seen.add("granted again when its lease was over")
                return
            self._granted(alive, before, ask, after, now)
            return
        must(alive is not None, "what is absent or expired is granted", ask, answer)
        assert alive is not None
        differs = _differ(alive, ask)
        if kind is Mismatch:
            must(differs and after is before, "a mismatch is one and changes nothing", ask, before)
            world.seen.add("mismatch")
            return
        free = alive.status == "released" and not alive.noted and not alive.uncertain
        must(not differs or free, "another fingerprint is refused", ask, before, answer)
        if kind is Busy:
            must(alive.nonce != ask.nonce, "who asks again gets the same answer", ask, before)
            must(
                alive.status == "running" and now < alive.lease_end and after is before,
                "busy is who has a lease that is alive",
                now,
                before,
            )
            world.seen.add("busy")
            self._not_in_its_own_way(alive, ask)
            self._not_left_behind(alive)
        elif kind is Replay:
            settled = alive.status in ("completed", "failed")
            must(settled and after is before, "only what is settled is replayed", before)
            world.seen.add("replayed")
        elif kind is Spent:
            spent = alive.status == "released" and alive.nonce == ask.nonce
            must(spent and after is before, "only the nonce of a released attempt is spent", before)
            world.seen.add("spent")
        elif kind is Held:
            self._held(alive, ask, after, now)

    def _granted(
        self, alive: Record | None, before: Record | None, ask: Claim, after: Record, now: int
    ) -> None:
        world = self._world
        story = world.story(ask)
        owner = (after.status, after.nonce, after.lease_end, after.started)
        must(owner == ("running", ask.nonce, now + ask.lease, now), "a grant is a lease", after)
        last = story.largest_token if before is None else max(before.token, story.largest_token)
        if before is not None or not world.clock_odd:
            must(after.token > last and after.token >= now, "tokens grow", last, now, after)
        spent, until = story.spent
        story.spent = ("", 0)
        odd = world.clock_odd or story.amnesia
        must(odd or spent != ask.nonce or until <= now, "what was given back stays so", ask)
        if alive is None:
            must(
                odd or story.kept_until <= now,
                "what may have happened, and how often it was tried, is remembered",
                story.kept_until,
                now,
                ask,
            )
            if story.largest_token and not story.is_settled:
                world.seen.add("forgotten in time")
            fresh = (after.attempt, after.noted, after.uncertain, after.fingerprint)
            must(fresh == (1, b"", False, ask.fingerprint), "what is absent starts afresh", after)
            if story.is_settled:
                gone = before is None and world.clock_odd  # purged before the clock went back
                must(
                    story.expires <= now or gone,
                    "what is settled stays as long as it was told",
                    after,
                )
                world.seen.add("ttl over")
            if story.largest_token:
                story.begin_again()
        else:
            self._granted_again(alive, ask, after, now)
        story.largest_token = after.token
        story.granted(after)
        self._remember(after, after.lease_end + max(ask.ttl, DAY), doubted=True)

    def _remember(self, record: Record, until: int, *, doubted: bool) -> None:
        """The record must be there until then."""
        story = self._world.story(record)  # type: ignore[arg-type]  # which has a scope as well
        story.kept_until, story.doubted = until, doubted
        must(
            record.expires == 0 or record.expires >= until,
            "a record lives as long as it is needed",
            record,
            until,
        )

    def _granted_again(self, alive: Record, ask: Claim, after: Record, now: int) -> None:
        world = self._world
        must(
            alive.status in ("running", "released"),
            "what is settled or held does not run again",
            alive,
            after,
        )
        must(alive.nonce != ask.nonce, "a spent nonce is not granted", alive, after)
        running = alive.status == "running"
        free = not running and not alive.noted and not alive.uncertain
        differs = _differ(alive, ask)
        must(free or not differs, "a key keeps its meaning while something of it lives", alive)
        if differs:
            must((after.attempt, after.noted) == (1, b""), "another meaning starts afresh", after)
            return
        must(after.noted == alive.noted, "the next attempt inherits the notes", alive, after)
        must(after.attempt == alive.attempt + 1, "attempts are counted", alive, after)
        left = ask.max_attempts is None or alive.attempt < ask.max_attempts
        must(left, "no attempt is granted beyond the last", alive, ask)
        if alive.noted:
            world.seen.add("notes inherited")
        if alive.uncertain and now - alive.updated > HOUR:
            world.seen.add("an uncertain end was remembered for hours")
        if running:
            must(now >= alive.lease_end, "nobody is granted a key whose lease is alive", alive)
            must(ask.on_expired == "take", "what is to be held is not taken", alive, ask)
            must(after.uncertain, "a take-over is told that the end was uncertain", after)
            world.seen.add("taken over")
            if now == alive.lease_end:
                world.seen.add("at the end of a lease")
            self._not_taken_without_reason(alive)
            self._not_left_behind(alive)
        else:
            must(after.uncertain == alive.uncertain, "doubt stays until it is settled", after)

    def _held(self, alive: Record, ask: Claim, after: Record, now: int) -> None:
        must(after.status == "held" and after.token == alive.token, "held gives no token", after)
        self._world.seen.add("held")
        if alive.status == "held":
            must(after == alive, "held is left as it is", alive, after)
            return
        used_up = ask.max_attempts is not None and alive.attempt >= ask.max_attempts
        if alive.status == "running":
            must(now >= alive.lease_end, "nobody is held whose lease is alive", alive)
            must(used_up or ask.on_expired == "hold", "only what is to be held is held", alive)
            self._not_taken_without_reason(alive)
            self._not_left_behind(alive)
        else:
            must(alive.status == "released" and used_up, "only what is used up is held", alive)
        must(after.noted == alive.noted and after.expires == 0, "held keeps everything", after)
        if used_up:
            self._world.seen.add("attempts used up")

    def _not_taken_without_reason(self, lapsed: Record) -> None:
        """A lease runs out only under an owner that is dead, cut off, paused, or hangs."""
        call = self._world.whose(lapsed.nonce)
        if call is None or call.over or not call.renews or call.story.amnesia:
            return
        if lapsed.nonce in self._world.strays:
            return
        since = lapsed.started - self._world.store_offset
        ends = call.process.dead or call.process.stopping  # whose keeper has ended already
        must(
            ends or call.process.trouble_at >= since,
            "nobody is taken over who is alive and in reach of the store",
            lapsed,
        )

    def _not_in_its_own_way(self, running: Record, ask: Claim) -> None:
        """A run that began without the store knows the claim that was granted unheard.

        One that it gave back before, and that a fail-over has brought back, is not its own.
        """
        world = self._world
        call = world.whose(ask.nonce)
        strange = world.strays | world.given_back
        if call is not None and call.unprotected and not {running.nonce, ask.nonce} & strange:
            must(world.whose(running.nonce) is not call, "an open run knows its claim", running)

    def _not_left_behind(self, running: Record) -> None:
        """A claim whose caller has left is given back as soon as the store can be reached."""
        world = self._world
        call = world.whose(running.nonce)
        if call is None or not call.over or call.process.dead:
            return
        if call.gone and (call.ran or not call.torn):
            return
        if running.nonce in world.strays or call.story.amnesia or call.story.unwritable:
            return
        process = call.process
        since = max(call.ended, process.trouble_at, process.refused_at, process.paused_until)
        must(
            world.hub.now - since < LEFT_BEHIND * (2 if call.torn else 1),
            "who leaves gives its claim back, or records how it ended",
            running,
        )

    # What people do

    def _resolve(
        self,
        before: Record | None,
        ask: Any,
        answer: Verdict,
        after: Record | None,
    ) -> None:
        held = before is not None and before.status == "held" and before.token == ask.token
        if not held:
            unchanged = after is before and answer is Verdict.LOST
            must(unchanged, "only what is held is resolved", before)
            return
        assert before is not None
        assert after is not None
        must(answer is Verdict.DONE and after.status == ask.status, "a resolve decides", after)
        must(after.token > before.token, "who was held can write no more", before, after)
        story = self._world.story(ask)
        story.largest_token = after.token
        if after.status != "released":
            story.settled(after)
        else:
            self._remember(after, after.updated + max(ask.ttl, DAY), doubted=True)

    # Writes

    def _write(  # noqa: PLR0917 - all that is known of one answer
        self,
        alive: Record | None,
        ask: Any,
        answer: Verdict,
        before: Record | None,
        after: Record | None,
        now: int,
    ) -> None:
        world = self._world
        owns = alive is not None and (alive.token, alive.nonce) == (ask.token, ask.nonce)
        if not owns:
            must(answer is Verdict.LOST, "only the owner writes", ask, before, answer)
            must(after is before, "only the owner changes a record", ask, before, after)
            world.seen.add("stale write refused")
            return
        assert alive is not None
        must(answer is not Verdict.LOST, "the owner is known", ask, before)
        if after is before:
            ends = type(ask) is Settle or (type(ask) is Release and not (ask.uncertain or ask.hold))
            may = alive.status == "running" or (alive.status == "held" and ends)
            must(
                not may or type(ask) is Note,
                "what the owner says of a running record is kept, and how a held one ended",
                ask,
                before,
            )
            return
        assert after is not None
        same = (after.token, after.nonce) == (alive.token, alive.nonce)
        must(same, "a write does not change the owner", after)
        kind = type(ask)
        if kind is Renew:
            must(alive.status == "running", "only what runs is renewed", alive)
            must(after.lease_end == now + ask.lease, "a renewed lease ends a lease later", after)
            self._remember(after, after.lease_end + max(ask.ttl, DAY), doubted=True)
            world.seen.add("renewed")
        elif kind is Note:
            must(alive.status in ("running", "held"), "only what is open is noted", alive)
            must(after.revision > alive.revision, "a late note does not undo a newer one", after)
        elif kind is Settle:
            must(alive.status in ("running", "held"), "only what is open is settled", alive)
            must(
                (after.status, after.result, after.error) == (ask.status, ask.result, ask.error),
                "what is settled is what was said",
                after,
            )
            world.story(ask).settled(after)
        elif kind is Release:
            definite = not (ask.uncertain or ask.hold)
            held = alive.status == "held"
            must(
                alive.status == "running" or (held and definite),
                "only what runs is released, or what is held and did nothing",
                alive,
            )
            must(after.noted == alive.noted, "a release keeps the notes", alive, after)
            must(
                after.uncertain
                == ((alive.uncertain and not (held and alive.attempt <= 1)) or ask.uncertain),
                "doubt stays until it is settled",
                after,
            )
            must(
                after.status == ("held" if ask.hold else "released"), "a release is one", ask, after
            )
            world.story(ask).released(ask)
            self._released(alive, ask, after, now)

    def _released(self, alive: Record, ask: Release, after: Record, now: int) -> None:
        """How long a released record lives: the table of `docs/operations.md`."""
        world = self._world
        story = world.story(ask)
        story.spent = (ask.nonce, now + HOUR)
        if after.status == "held":
            return
        counted = story.plan.terms.max_attempts is not None and after.attempt > 0
        if after.noted or after.uncertain or counted:
            promised = alive.expires if alive.uncertain else 0
            until = max(now + max(story.plan.terms.ttl, DAY), promised)
            self._remember(after, until, doubted=bool(after.noted or after.uncertain))
            return
        brief = after.expires < now + HOUR
        if brief:
            once = world.claims_sent[ask.nonce] == 1
            must(ask.unused and once, "only what nobody else can claim is soon forgotten", ask)
            story.spent = ("", 0)
            world.seen.add("given back for a minute")
        self._remember(after, now + (MINUTE if brief else HOUR), doubted=False)


def _forgotten(alive: Record | None, ask: Any, answer: Verdict, after: Record | None) -> None:
    if alive is None:
        must(after is None and answer is Verdict.DONE, "what is absent is forgotten", ask)
    elif alive.token != ask.token or (alive.status in ("running", "held") and not ask.force):
        must(after == alive and answer is Verdict.LOST, "nobody forgets what it has not read", ask)
    else:
        must(after is None and answer is Verdict.DONE, "a forgotten record is gone", ask)


def _differ(record: Record, ask: Claim) -> bool:
    return None not in (record.fingerprint, ask.fingerprint) and (
        record.fingerprint != ask.fingerprint
    )
