"""The way from a process to the store and back, and what gets lost on it.

What becomes of a message is told by the seed, the node and the number of the message alone.
"""

from typing import TYPE_CHECKING, Any

from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.errors import StoreError
from tests.simulation.dice import mix
from tests.simulation.hub import Activity, DeadError

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

FULL = "the store is full and takes no new records"
SILENT = "no answer in time"
CUT = "the connection broke before the answer came"
REFUSED = "connection refused"
FORBIDDEN = "the store does not allow this user what it needs"


class ForbiddenError(Exception):
    """What a store that is not of this project may raise where its server forbids something."""


class Message:
    """A request on its way."""

    __slots__ = ("activity", "back", "full", "reply", "sent", "verb", "waits", "what", "who")

    who: "Process"
    verb: str
    what: tuple[Any, ...]
    activity: Activity
    waits: int
    sent: int
    back: int
    reply: bool
    full: bool


class Line:
    """The store as code that blocks sees it from one process."""

    remote = True

    def __init__(self, world: "World", process: "Process") -> None:
        self._world = world
        self._process = process
        self.sends_once = all(kind != "doubled" for _, kind in world.plan.limits)
        if not world.plan.watching:
            self.watch = None  # type: ignore[assignment, method-assign]  # a store that cannot

    def call(self, verb: str, *what: Any) -> Any:
        """The store's answer, unless something gets lost."""
        world, process = self._world, self._process
        hub = world.hub
        if process.dead:
            raise DeadError
        number = world.sent[process.index] = world.sent[process.index] + 1
        bits = mix(world.seed, process.index + 1, number)
        out = world.plan.latency + (bits >> 16 & 0x7FF)
        world.sending(process, "give back" if verb == "release" and what[0].unused else verb)
        now = hub.now
        world.check_allowed(process, verb, what[0], bits)
        if process.cut_until > now and process.cut_how != "deaf":
            refused = process.cut_how == "refused"
            process.suffer(now)
            process.out_of_reach += 1
            hub.wait(0.002 if refused else world.plan.time_out)
            raise StoreError(REFUSED, happened=False if refused else None, unreachable=True)
        message = Message()
        message.who, message.verb, message.what, message.sent = process, verb, what, now
        activity = hub.current
        assert activity is not None
        message.activity, message.waits = activity, activity.waits + 1
        message.back = world.plan.latency + (bits >> 27 & 0x7FF)
        message.reply, message.full = True, False
        fault = world.fault(process, number, bits) if bits & 0xFFFF < world.plan.trouble else None
        if fault is not None:
            process.suffer(now + int(world.plan.time_out * 1_000_000))
            process.out_of_reach += fault != "full"
            if fault == "refused":
                hub.wait(0.002)
                raise StoreError(REFUSED, happened=False, unreachable=True)
            out = self._befallen(fault, message, out, bits)
        elif world.plan.edges and verb == "claim" and bits >> 40 & 1:
            out = world.edge(what[0], out)
            process.suffer(now + out)
        if out >= 0:
            hub.at(now + out, world.arrive, message)
        if getattr(activity.owner, "cut_in", "") == verb:
            activity.owner.cut_in = ""
            hub.at(now + bits % (2 * world.plan.latency), activity.owner.cut_off)
        answer = hub.wait()
        if isinstance(answer, StoreError):
            try:
                raise answer
            finally:
                answer = None  # else it would hold its own traceback, and that this frame
        return answer

    def _befallen(self, fault: str, message: Message, out: int, bits: int) -> int:
        """When the request arrives; -1: never. Who waits for a reply in vain hears of that."""
        world = self._world
        hub = world.hub
        silence = int(world.plan.time_out * 1_000_000)
        if fault == "full":
            message.full = True
            return out
        if fault == "doubled":
            again = Message()
            for name in Message.__slots__:
                setattr(again, name, getattr(message, name))
            again.reply = False
            hub.at(hub.now + out + world.lateness(bits), world.arrive, again)
            return out
        message.reply = False
        quick = fault == "reply lost" and bits >> 41 & 1
        error = StoreError(CUT if quick else SILENT, happened=None, unreachable=not quick)
        gone = hub.now + (out + message.back if quick else silence)
        hub.wake_at(gone, message.activity, message.waits, error)
        if fault == "request lost":
            return -1
        if fault == "late":
            return silence + world.lateness(bits)
        return out

    def claim(self, ask: Claim, /) -> Answer:
        self._world.claims_sent[ask.nonce] += 1
        self._world.check_claim(self._process, ask)
        self._world.asks()
        answer: Answer = self.call("claim", ask)
        self._world.answers(answer)
        return answer

    def renew(self, ask: Renew, /) -> Verdict:
        self._world.check_renewal(ask)
        return self.call("renew", ask)  # type: ignore[no-any-return]  # as the store answers

    def note(self, ask: Note, /) -> Verdict:
        return self.call("note", ask)  # type: ignore[no-any-return]  # as the store answers

    def settle(self, ask: Settle, /) -> Verdict:
        return self.call("settle", ask)  # type: ignore[no-any-return]  # as the store answers

    def release(self, ask: Release, /) -> Verdict:
        return self.call("release", ask)  # type: ignore[no-any-return]  # as the store answers

    def resolve(self, ask: Resolve, /) -> Verdict:
        return self.call("resolve", ask)  # type: ignore[no-any-return]  # as the store answers

    def forget(self, ask: Forget, /) -> Verdict:
        return self.call("forget", ask)  # type: ignore[no-any-return]  # as the store answers

    def get(self, scope: str | None, key: str, /) -> Record | None:
        return self.call("get", scope, key)  # type: ignore[no-any-return]  # as the store answers

    def scan(self, ask: Scan, /) -> Page:
        return self.call("scan", ask)  # type: ignore[no-any-return]  # as the store answers

    def purge(self, grace: int, limit: int, /) -> int:
        return self.call("purge", grace, limit)  # type: ignore[no-any-return]  # as the store answers

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        hub, store, place = self._world.hub, self._world.store, (scope or "", key)
        record = store.records.get(place)
        if record is not None and record.status == "running" and record.token == token:
            store.watch(place, hub.waker())
            hub.wait(seconds)

    def close(self) -> None:
        return


class AwaitedLine:
    """The store as coroutines see it from one process."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.sends_once = line.sends_once
        if line.watch is None:
            self.watch = None

    async def claim(self, ask: Claim, /) -> Answer:
        return self._line.claim(ask)

    async def renew(self, ask: Renew, /) -> Verdict:
        return self._line.renew(ask)

    async def note(self, ask: Note, /) -> Verdict:
        return self._line.note(ask)

    async def settle(self, ask: Settle, /) -> Verdict:
        return self._line.settle(ask)

    async def release(self, ask: Release, /) -> Verdict:
        return self._line.release(ask)

    async def resolve(self, ask: Resolve, /) -> Verdict:
        return self._line.resolve(ask)

    async def forget(self, ask: Forget, /) -> Verdict:
        return self._line.forget(ask)

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        return self._line.get(scope, key)

    async def scan(self, ask: Scan, /) -> Page:
        return self._line.scan(ask)

    async def purge(self, grace: int, limit: int, /) -> int:
        return self._line.purge(grace, limit)

    async def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        self._line.watch(scope, key, token, seconds)

    async def aclose(self) -> None:
        return
