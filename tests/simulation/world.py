"""One schedule: a seed lived through, from the first call over all misfortunes to the last answer.

Chaos first. Then everything heals, and whoever asks must get an answer.
"""

from collections import Counter
from typing import Any
from zlib import crc32

from oncekey.core.codec import PLAIN
from oncekey.core.requests import (
    Busy,
    Claim,
    Forget,
    Granted,
    Mismatch,
    Renew,
    Replay,
    Request,
    Resolve,
)
from oncekey.engine.engine import ASK_PATIENCE
from oncekey.errors import ConfigurationError, StoreError
from tests.simulation.caller import Asking, Try
from tests.simulation.dice import mix
from tests.simulation.hub import MICRO, NEVER, DeadError, Hub
from tests.simulation.ledger import Story
from tests.simulation.line import FORBIDDEN, FULL, ForbiddenError, Message
from tests.simulation.oracle import Oracle, must
from tests.simulation.plan import SECOND, Caller, Fault, Plan
from tests.simulation.process import Hanging, Process, is_settle
from tests.simulation.stage import EPOCH, STAGE
from tests.simulation.store import SimulatedStore

Injected = tuple[str, int] | tuple[str, int, int, str]

FORBIDDEN_VERBS = (
    frozenset({"claim", "renew", "note", "settle", "release", "get"}),
    frozenset({"claim", "renew", "note", "settle", "release"}),
    frozenset({"renew", "settle"}),
    frozenset({"renew"}),
    frozenset({"settle", "release"}),
)
"""What a user may be forbidden: everything, to write, and what other scripts do than claims."""
PATIENCE = 120 * SECOND
GRACE = 3 * SECOND
AT_ONCE = SECOND * 3 // 10
"""Microseconds in which the keeper gets to what it is to do at once."""
FOUND_OUT = SECOND
"""Microseconds in which the keeper finds out whether a store records anything."""
UNBEGUN = 2_500_000
"""Microseconds after which a claim is given back whose caller has left before its code began."""
CHAOS = 20 * SECOND
"""Where hours pass, messages get lost only for so long before and after them."""


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, only: frozenset[Injected] | None = None) -> None:
        """`only` leaves every fault out that is not in it."""
        self.seed = seed
        self.plan = plan = Plan(seed)
        self.hub = Hub(seed)
        self.seen: set[str] = set()
        self.injected: list[Injected] = []
        self.trace = 0
        self.told: list[str] | None = None
        """What happened, in words, where somebody wants to read it."""
        self.steps = 0
        self.healed = False
        self.clock_odd = plan.tick > 1
        """Whether the store may have told the same time twice."""
        self.full_until = 0
        self.forbids_until = 0
        self.forbidden: frozenset[str] = frozenset()
        """The verbs that the store does not allow its users until then."""
        self.forbids_long = False
        """Whether that takes so long that a lease may end meanwhile."""
        self.store_offset = EPOCH
        self.strays: set[str] = set()
        """Nonces of claims that came once more when their asker had its answer and was gone."""
        self.given_back: set[str] = set()
        """Nonces of claims whose owner has released them."""
        self._asked: set[str] = set()
        self._first_asked: dict[str, int] = {}
        """By nonce: when its claim was sent for the first time."""
        self.claims_sent: Counter[str] = Counter()
        """How often the claim of a nonce went out."""
        self._only = only
        self._frozen: int | None = None
        self._nonces: dict[str, Try] = {}
        self._drawn = 0
        self._forgot = False
        self._upon = 0
        self.sent = [0] * len(plan.rates)
        self.tries: list[Try] = []
        self.store = SimulatedStore(self.store_time, Oracle(self))
        self.stories = [Story(self, number, key) for number, key in enumerate(plan.keys)]
        self._by_scope = {key.scope: self.stories[n] for n, key in enumerate(plan.keys)}
        self.lived: list[Process] = []
        """Every process there ever was."""
        STAGE.hub, STAGE.random, STAGE.took = self.hub, self._random, self._took
        self.processes = [Process(self, index) for index in range(plan.nodes)]
        self.asking = 0

    # The whole of it

    def run(self) -> None:
        """The schedule is over, and nothing was broken."""
        hub, plan = self.hub, self.plan
        for number, caller in enumerate(plan.callers):
            self.asking += 1
            hub.at(caller.start, Asking(self, number, caller, last=False).next)
        for fault in plan.faults:
            hub.at(fault.at, self._befall, fault)
        if plan.unwritable and not self.masked(("unwritable", 0)):
            self.injected.append(("unwritable", 0))
            self.stories[0].unwritable = True
        hub.run(plan.heal_at)
        self._heal()
        hub.run(hub.now + PATIENCE)
        must(not self.asking, "once everything is well, everybody is answered")
        hub.run(hub.now + GRACE)
        self._check_the_end()

    def answered(self) -> None:
        """One caller asks no more."""
        self.asking -= 1
        self.hub.enough = self.healed and not self.asking

    def close(self) -> None:
        """Nothing of it is left in memory, and the garbage collector has nothing to look for."""
        for process in self.lived:
            process.dead = True
            for activity in list(process.activities):
                self.hub.throw(activity, DeadError())
        for process in self.lived:
            vars(process.keeper).clear()
            vars(process).clear()
        for one in (self.store, *self.stories, self.hub, self):
            vars(one).clear()

    def _heal(self) -> None:
        self.healed = True
        self._thaw()
        now = self.hub.now
        for index, process in enumerate(self.processes):
            if process.dead or process.stopping or process.ends_soon:
                self._restart(index)
        for key in range(len(self.stories)):
            self.asking += 1
            payload = self.plan.callers[0].payload if key == 0 else "a"
            last = Caller(key, payload, 0, 0, 0, "", 0, "")
            self.hub.at(now, Asking(self, 50 + key, last, last=True).next)

    def _check_the_end(self) -> None:
        for story in self.stories:
            record = self.store.get(story.plan.scope, story.plan.key)
            if record is not None and record.status == "completed" and not story.amnesia:
                must(story.effects, "what is completed has happened", record)
        for call in self.tries:
            living = not call.process.dead and not call.process.stopping
            if not living or call.gone or not call.over:
                continue
            if call.unprotected:
                must(call.recorded, "a run that began without the store is recorded", call.outcome)
                self.seen.add("recorded late")
            elif call.told_late:
                must(call.recorded, "what could not be recorded in time is recorded later")
            elif call.finished:
                must(call.recorded, "what was done is recorded", call.outcome)
        for process in self.processes:
            must(not process.breaker.open, "a store that answers closes the breaker", process.index)
            odd = {
                (call.story.plan.scope, call.story.plan.key)
                for call in self.tries
                if call.process is process and (call.torn or not call.over)
            }  # whose flights are replaced by whoever comes next
            left = {*process.flights._flights} - odd
            must(not left, "nobody is waited for who has left", process.index, left)

    # Time and names

    def store_time(self) -> int:
        now = self.hub.now if self._frozen is None else self._frozen
        tick = self.plan.tick
        return (now if tick == 1 else now - now % tick) + self.store_offset

    def _random(self) -> bytes:
        self._drawn += 1
        return b"".join(mix(self.seed, 7, 4 * self._drawn + n).to_bytes(8, "big") for n in range(4))

    def _took(self, nonce: str) -> None:
        current = self.hub.current
        if current is not None and isinstance(current.owner, Try):
            self._nonces[nonce] = current.owner

    def whose(self, nonce: str) -> Try | None:
        """The call that chose this nonce."""
        return self._nonces.get(nonce)

    def story(self, ask: Request) -> Story:
        """What happened under the key of the request."""
        return self._by_scope[ask.scope or ""]

    def unwritable(self, ask: Request) -> bool:
        """Whether the store refuses what is said of the end of this key's attempts."""
        return ask.scope is not None and not self.healed and self.story(ask).unwritable

    def tell(self, *words: object) -> None:
        """Something happened."""
        if self.told is not None:
            self.told.append(f"{self.hub.now / SECOND:9.6f}  " + "  ".join(map(str, words)))

    # The network

    def fault(self, process: Process, number: int, bits: int) -> str | None:
        """What befalls this message, if anything does."""
        if self.healed or (self.plan.leap and self.hub.now % self.plan.leap > CHAOS):
            return None
        roll = bits & 0xFFFF
        for limit, kind in self.plan.limits:
            if roll < limit:
                if self.masked(("line", process.index, number, kind)):
                    return None
                self.injected.append(("line", process.index, number, kind))
                self.tell("message", number, "of", process.index, kind)
                return kind
        return None

    def sending(self, process: Process, verb: str) -> None:
        """The process is about to send the verb; that may be the moment at which it is cut off."""
        upon = self.plan.upon
        if upon is None or upon.verb != verb or self.healed:
            return
        self._upon += 1
        if self._upon == upon.nth and not self.masked(("upon", upon.nth)):
            self.injected.append(("upon", upon.nth))
            self.tell(upon)
            until = min(self.hub.now + upon.long, self.plan.heal_at)
            process.suffer(until)
            if upon.how == "asleep":
                process.fall_asleep(until)
                self.seen.add("fell asleep upon a verb")
                self.hub.wait(0.0)
            else:
                process.cut_until, process.cut_how = until, upon.how
                self.seen.add("cut off upon a verb")

    def check_allowed(self, process: Process, verb: str, ask: Any, bits: int) -> None:
        """Raise what a store raises whose server does not allow its user this verb at present."""
        if verb == "settle" and self.unwritable(ask):
            self.seen.add("a record that could not be written")
            self.hub.wait(2 * self.plan.latency * MICRO)
            self._not_recorded(process)
            raise ConfigurationError(FORBIDDEN)
        if self.forbids_until <= self.hub.now or verb not in self.forbidden:
            return
        process.refused_at = self.hub.now
        if self.forbids_long:
            process.suffer(self.forbids_until)
        self.seen.add(f"forbidden: {verb}")
        self.hub.wait(2 * self.plan.latency * MICRO)
        if bits >> 42 & 3:
            if verb == "settle":
                self._not_recorded(process)
            raise ConfigurationError(FORBIDDEN)
        raise ForbiddenError

    def _not_recorded(self, process: Process) -> None:
        """A call could not say how it ended: its process finds out whether anybody can."""
        current = self.hub.current
        if current is not None and isinstance(current.owner, Try):
            process.unrecorded_at = min(process.unrecorded_at, self.hub.now)

    def check_claim(self, process: Process, ask: Claim) -> None:
        """A caller claims: not for long in vain, and not while nothing can be recorded."""
        current, now = self.hub.current, self.hub.now
        if current is None or not isinstance(current.owner, Try) or process.slept:
            return
        first = self._first_asked.setdefault(ask.nonce, now)
        longest = int((self.plan.time_out + ASK_PATIENCE) * SECOND)
        slow = process.rate < 1
        must(slow or now - first <= longest, "nobody asks for long where nobody answers", ask)
        since = process.unrecorded_at
        must(
            now - since < FOUND_OUT or process.trouble_at >= since,
            "nothing new is begun while nothing can be recorded",
            ask,
        )

    def asks(self) -> None:
        """A caller claims, or the keeper, who is nobody here."""
        current = self.hub.current
        if current is None or not isinstance(current.owner, Try) or current.owner.superseded:
            return
        call = current.owner
        if call.asks_since == NEVER:
            call.first = not any(
                one is not call and one.process is call.process and one.story is call.story
                for one in self.tries
                if not one.over
            )
        call.asks_since = min(call.asks_since, self.hub.now)

    def answers(self, answer: object) -> None:
        """The caller is told. Those of its process who asked before count as told with it.

        Who hears only that somebody is busy, or means something else, knows nothing of them.
        """
        current = self.hub.current
        if current is None or not isinstance(current.owner, Try):
            return
        call = current.owner
        call.asks_since = NEVER
        if type(answer) not in (Busy, Mismatch):
            for one in self.tries:
                if one is not call and one.process is call.process and one.story is call.story:
                    one.asks_since, one.superseded = NEVER, True

    def check_renewal(self, ask: Renew) -> None:
        """Nobody renews for a call that is over, however it ended."""
        call = self._nonces.get(ask.nonce)
        if call is None:
            return
        call.renewed_at = self.hub.now
        if not call.over or call.story.amnesia:
            return
        process, pause = call.process, call.story.plan.terms.heartbeat_every
        since = max(call.ended, process.trouble_at, process.paused_until)
        begins = call.torn and not call.ran  # then the keeper waits a moment for it to begin
        must(
            begins and self.hub.now - since < UNBEGUN + pause * SECOND,
            "a lease is renewed only while its code runs",
            ask,
        )

    def _check_renewed(self, what: tuple[Try, str, int]) -> None:
        """What is left of a lease that was granted long ago is used to renew it.

        A claim that was given back needs no lease: `reconcile` was asked, and it was too early.
        """
        call, nonce, since = what
        process = call.process
        if nonce in self.given_back:
            return
        ends = call.over or call.finished or call.cut or process.dead or process.stopping
        trouble = max(process.trouble_at, process.refused_at, process.paused_until) >= since
        if call.renews and not (ends or trouble or call.story.amnesia):
            must(call.renewed_at >= since, "a grant that comes late is renewed at once", since)

    def masked(self, fault: Injected) -> bool:
        """Whether this fault is to be left out."""
        return self._only is not None and fault not in self._only

    def lateness(self, bits: int) -> int:
        return (bits >> 20) % self.plan.lateness

    def edge(self, ask: Claim, out: int) -> int:
        """A claim that arrives exactly when a lease or a life ends, where one does soon."""
        record = self.store.records.get((ask.scope or "", ask.key))
        if record is None:
            return out
        for moment in (record.lease_end, record.expires):
            wait = moment - self.store_time()
            if 0 < wait < self.plan.time_out * SECOND * 0.9:
                return wait
        return out

    def arrive(self, message: Message) -> None:
        """The store answers."""
        hub, process, verb = self.hub, message.who, message.verb
        self.steps += 1
        self.trace = crc32(b"%d %d %b" % (hub.now, process.index, verb.encode()), self.trace)
        if verb == "claim":
            ask: Claim = message.what[0]
            heard = message.reply and message.activity.waits == message.waits
            if not heard and ask.nonce in self._asked:
                self.strays.add(ask.nonce)
            self._asked.add(ask.nonce)
            if message.full or self.full_until > hub.now:
                self._refuse(message)
                return
            call = self._nonces.get(ask.nonce)
            if call is not None and call.over:
                call.recorded = True
        elif verb == "settle":
            call = self._nonces.get(message.what[0].nonce)
            if call is not None:
                call.recorded = True
        elif verb == "release":
            self.given_back.add(message.what[0].nonce)
        answer = getattr(self.store, verb)(*message.what)
        self.tell(process.index, verb, message.what, answer, "" if message.reply else "(unheard)")
        if not message.reply:
            self.seen.add("arrived, and nobody heard of it")
            return
        if process.cut_until > hub.now:
            process.suffer(message.sent + int(self.plan.time_out * SECOND))
            process.out_of_reach += 1
            self.seen.add("arrived, and nobody heard of it")
            silence = message.sent + int(self.plan.time_out * SECOND)
            error = StoreError("no answer in time", happened=None, unreachable=True)
            hub.wake_at(max(silence, hub.now), message.activity, message.waits, error)
            return
        hub.wake_at(hub.now + message.back, message.activity, message.waits, answer)
        self._heard(message, answer)

    def _refuse(self, message: Message) -> None:
        self.seen.add("full")
        message.who.suffer(self.hub.now)
        error = StoreError(FULL, happened=False)
        self.hub.wake_at(self.hub.now + message.back, message.activity, message.waits, error)

    def _heard(self, message: Message, answer: object) -> None:
        """Somebody hears from the store that an end is recorded, or that it owns a key.

        If it owned the key before, what is left is no whole lease.
        """
        if message.verb == "settle":
            message.who.unrecorded_at = NEVER
        elif type(answer) is Replay and self.plan.focus == "forgets":
            self._forget_in(self.story(message.what[0]), message.who)
        elif type(answer) is Granted and message.activity.waits == message.waits:
            call = self._nonces.get(answer.record.nonce)
            late = answer.record.lease_end - answer.now < message.what[0].lease
            if call is not None and late:
                soon = self.hub.now + message.back + AT_ONCE
                what = (call, answer.record.nonce, self.hub.now)
                self.hub.at(soon, self._check_renewed, what)

    # What befalls processes and the store

    def _befall(self, fault: Fault) -> None:
        if self.masked((fault.kind, fault.number)):
            return
        self.injected.append((fault.kind, fault.number))
        self.trace = crc32(b"%d %b" % (self.hub.now, fault.kind.encode()), self.trace)
        process = self.processes[fault.where]
        self.tell(fault)
        _KINDS[fault.kind](self, fault, process)

    def _restart(self, index: int) -> None:
        old = self.processes[index]
        if not old.dead:
            old.die()
        self.processes[index] = Process(self, index)

    def _crash(self, fault: Fault, process: Process) -> None:
        if process.dead:
            return
        self.seen.add("crash")
        process.die()
        self.hub.at(self.hub.now + fault.long // 4, self._again, process)

    def _again(self, process: Process) -> None:
        if self.processes[process.index] is process:
            self._restart(process.index)

    def _stop(self, fault: Fault, process: Process) -> None:
        """The process is to end: now, or right behind the next call."""
        if process.dead or process.stopping:
            return
        process.ends_soon = True
        if process.urgent:
            self.stop(process)

    def stop(self, process: Process) -> None:
        """The process ends as `atexit` ends one, with a last try at what is urgent."""
        process.stopping, process.ends_soon = True, False
        self.seen.add("stopped")
        begun = self.hub.now

        def last_moments() -> None:
            waiting = list(process.urgent)
            process.urgent.update(dict.fromkeys(waiting, False))
            process.keeper.finish()
            unsaid = [one for one in waiting if one in process.urgent and is_settle(one)]
            told = process.never_recorded >= len(unsaid)
            must(told, "what was never recorded is told", unsaid, process.never_recorded)
            if process.trouble_at < begun and process.paused_until < begun:
                left = [one for one in waiting if process.urgent.get(one) is False]
                must(not left, "what must be recorded is tried before the process ends", left)
            self.hub.at(self.hub.now, lambda _: self._again(process))

        self.hub.start(process, last_moments)

    def _pause(self, fault: Fault, process: Process) -> None:
        process.fall_asleep(min(self.hub.now + fault.long, self.plan.heal_at))
        self.seen.add("paused")

    def _cut(self, fault: Fault, process: Process) -> None:
        process.cut_until = min(self.hub.now + fault.long, self.plan.heal_at)
        process.cut_how = ("refused", "silent", "deaf", "deaf")[fault.bits % 4]
        process.suffer(process.cut_until)
        self.seen.add("cut off from the store")

    def _outage(self, fault: Fault, process: Process) -> None:
        for one in self.processes:
            self._cut(fault, one)
        self.seen.add("outage")

    def _forbid(self, fault: Fault, process: Process) -> None:
        """Rights are taken away, or a password is another one, and soon everything is as before."""
        self.forbids_until = min(self.hub.now + fault.long, self.plan.heal_at)
        self.forbidden = FORBIDDEN_VERBS[fault.bits % len(FORBIDDEN_VERBS)]
        lease = min(key.terms.lease for key in self.plan.keys)
        self.forbids_long = lease < 4 * SECOND or fault.long > lease // 3

    def _sleep(self, fault: Fault, process: Process) -> None:
        """The machine of a process sleeps for hours, and its monotonic clock perhaps as well."""
        if process.dead:
            return
        until = min(self.hub.now + fault.long, self.plan.heal_at)
        if until <= process.paused_until:
            return
        if fault.bits & 1:
            process.stood += until - self.hub.now
        process.fall_asleep(until)
        self.seen.add("slept for hours")

    def _full(self, fault: Fault, process: Process) -> None:
        self.full_until = min(self.hub.now + fault.long, self.plan.heal_at)

    def _fail_over(self, fault: Fault, process: Process) -> None:
        lost = self.store.fail_over(fault.long // 4)
        for scope in {scope for scope, _ in lost} & self._by_scope.keys():
            self._by_scope[scope].forget()
        if lost:
            self.seen.add("fail-over that lost something")
        if fault.bits & 1:
            self.store_offset -= (fault.bits >> 8) % (2 * SECOND)
            self.clock_odd = True
            self.seen.add("store clock went back")

    def _evict(self, fault: Fault, process: Process) -> None:
        place = self.store.evict(fault.bits)
        if place is not None and place[0] in self._by_scope:
            self._by_scope[place[0]].forget()
            self.seen.add("evicted")

    def _fork(self, fault: Fault, process: Process) -> None:
        if process.dead or len(self.processes) == len(self.sent):
            return
        self.seen.add("forked")
        child = Process(self, len(self.processes), process)
        self.processes.append(child)

    def _hang(self, fault: Fault, process: Process) -> None:
        """Another store of the process hangs, for which its keeper has something to do."""
        if process.dead or process.stopping:
            return
        self.seen.add("another store hung")
        chore = Hanging(self, 5 + fault.long / SECOND)  # as leases are, or longer
        self.hub.start(process, lambda: process.take_up(chore, 0.0))

    def _jump(self, fault: Fault, process: Process) -> None:
        process.skew += (fault.bits >> 8) % (7200 * SECOND) - 3600 * SECOND
        self.seen.add("wall clock jumped")

    def _stand(self, fault: Fault, process: Process) -> None:
        """The clock of the store stands still for a while and then goes on from where it stood."""
        if self._frozen is not None:
            return
        self._frozen = stood = self.hub.now
        self.clock_odd = True
        self.seen.add("store clock stood still")

        self.hub.at(stood + fault.long, self._thaw)

    def _thaw(self, _: object = None) -> None:
        if self._frozen is not None:
            self.store_offset -= self.hub.now - self._frozen
            self._frozen = None

    def _resolve_in_chaos(self, fault: Fault, process: Process) -> None:
        self.resolve(fault.bits % len(self.stories), fault.long)

    def resolve(self, key: int, later: int = 0) -> None:
        """A human looks at a held record and decides, now or somewhat later."""
        story = self.stories[key]
        record = self.store.get(story.plan.scope, story.plan.key)
        if record is None or record.status != "held":
            return
        self.hub.at(self.hub.now + later, self._resolve, (story, record.token))

    def _resolve(self, what: tuple[Story, int]) -> None:
        story, token = what
        payload = ""
        record = self.store.get(story.plan.scope, story.plan.key)
        if record is not None and record.fingerprint is not None:
            payload = record.fingerprint[2:]
        effects = story.of(payload)
        result = None
        if effects and story.plan.value != "unkeepable":
            result = PLAIN.encode(effects[0].value)
        if not effects:
            story.retries += 1
        self.seen.add("resolved as done" if effects else "resolved: run again")
        self.store.resolve(
            Resolve(
                story.plan.scope,
                story.plan.key,
                token=token,
                status="completed" if effects else "released",
                result=result,
                error=None,
                ttl=story.plan.terms.ttl,
            )
        )

    def _forget(self, fault: Fault, process: Process) -> None:
        story = self.stories[fault.bits % len(self.stories)]
        record = self.store.get(story.plan.scope, story.plan.key)
        if record is None:
            return

        def forget(_: object) -> None:
            ask = Forget(
                record.scope, record.key, token=record.token, force=bool(fault.bits >> 8 & 1)
            )
            had = self.store.get(record.scope, record.key)
            self.store.forget(ask)
            if had is not None and self.store.get(record.scope, record.key) is None:
                story.forget(on_purpose=True)
                self.seen.add("forgotten")

        self.hub.at(self.hub.now + fault.long // 2, forget)

    def _forget_in(self, story: Story, process: Process) -> None:
        """Somebody forgets in this process what is settled, as `Once.forget` does it: once."""
        record = self.store.get(story.plan.scope, story.plan.key)
        if process.dead or record is None or self._forgot or self.masked(("forgets", 0)):
            return
        self._forgot = True
        self.injected.append(("forgets", 0))
        self.store.forget(Forget(record.scope, record.key, token=record.token, force=False))
        story.forget(on_purpose=True)
        story.forgotten_in = process

        def forget() -> None:
            if process.cache is not None:
                process.cache.drop((record.scope, record.key))
            process.flights.forget((record.scope, record.key))
            story.forgotten_at = self.hub.now
            self.seen.add("forgotten in a process")

        self.hub.start(process, forget)


_KINDS = {
    "crash": World._crash,
    "stop": World._stop,
    "pause": World._pause,
    "cut": World._cut,
    "outage": World._outage,
    "full": World._full,
    "access": World._forbid,
    "sleep": World._sleep,
    "fail over": World._fail_over,
    "evict": World._evict,
    "fork": World._fork,
    "wall clock jumps": World._jump,
    "store clock stands": World._stand,
    "resolve": World._resolve_in_chaos,
    "forget": World._forget,
    "another store hangs": World._hang,
}
