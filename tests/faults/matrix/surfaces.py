"""The ways in: how a worker has its effect done once. All but one are the product's own doors."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from oncekey import (
    Done,
    InProgressError,
    LeaseLostError,
    NotDone,
    NotRecordedError,
    Once,
    OncekeyError,
    Policy,
    Record,
    current,
    current_async,
)
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.jobs import handler
from oncekey.messages import Inbox, Message
from oncekey.observe import Event
from tests.faults.matrix.ledger import Arrival, Ledger
from tests.faults.matrix.own_transaction import own_transaction
from tests.faults.matrix.points import Failpoints, PointedStore
from tests.faults.matrix.redis_places import store_at
from tests.faults.matrix.spec import SCOPE, Spec

TOLD = ("unprotected", "taken_over", "lost", "not_recorded", "held", "renewal_failed")


made: Final[ContextVar[list[str]]] = ContextVar("made")
"""The values of the effects that have happened in the present call."""


class Told(NamedTuple):
    """An answer: the value, and whether the call is told that it ran for it."""

    value: str
    ran: bool

    @property
    def by_own_effect(self) -> bool:
        """Whether the call made the value: also if it lost its lease and `reconcile` found that."""
        return self.ran or self.value in made.get(())


class Work:
    """What the surfaces of one worker share: the effect, its ledger and the failpoints."""

    def __init__(self, spec: Spec, points: Failpoints) -> None:
        self.spec, self.points = spec, points
        self.ledger = Ledger(spec.folder)
        self._count = 0
        self._who = f"{spec.name}.{spec.life}"

    def value(self, key: str) -> str:
        """Another one for every run."""
        self._count += 1
        return f"{key}.{self._who}.{self._count}"

    def effect(self, key: str, token: int, downstream: str) -> str:
        self.taste(key)
        self.points.passing("before_effect")
        if self.spec.effect:
            time.sleep(self.spec.effect)
        return self.arrive(key, token, downstream)

    async def effect_async(self, key: str, token: int, downstream: str) -> str:
        self.taste(key)
        self.points.passing("before_effect")
        if self.spec.effect:
            await asyncio.sleep(self.spec.effect)
        return self.arrive(key, token, downstream)

    def taste(self, key: str) -> None:
        """Some keys are poison."""
        if self.spec.poison and int(key[1:]) % self.spec.poison == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def arrive(self, key: str, token: int, downstream: str) -> str:
        value = self.value(key)
        made.get([]).append(value)
        self.ledger.arrive(Arrival(key, token, downstream, self._who, value))
        self.points.passing("after_effect")
        return value

    def reconcile(self, record: Record) -> Done | NotDone:
        """What a provider says who is asked whether it has done it."""
        found = self.ledger.find(record.key)
        return NotDone() if found is None else Done(found.value)

    def observe(self, event: Event) -> None:
        if event.name in TOLD:
            with open(f"{self.spec.folder}/events", "a") as file:  # noqa: PTH123 - opened often
                file.write(f"{event.name} {self.spec.name} {event.key}\n")

    @property
    def policy(self) -> Policy:
        spec = self.spec
        return Policy(
            lease=spec.lease,
            wait=spec.wait,
            ttl=spec.ttl,
            fail_mode=spec.fail_mode,
            on_crash="hold" if spec.mode == "held" else "retry",
            quiet=0 if spec.mode == "reconciled" else None,
            max_attempts=spec.max_attempts,
        )

    @property
    def reconciler(self) -> Any:
        return self.reconcile if self.spec.mode == "reconciled" else None

    def once(self) -> Once:
        store = PointedStore(store_at(self.spec.place), self.points)
        # No cache: a duplicate shall be answered by the store.
        return Once(store, scope=SCOPE, cache=False, observers=[self.observe], policy=self.policy)


Ask = Callable[[str], Told]
AskAsync = Callable[[str], Awaitable[Told]]


def function(work: Work) -> Ask:
    """A decorated function."""
    once = work.once()

    @once("{key}", scope=SCOPE, reconcile=work.reconciler)
    def run(key: str) -> str:
        attempt = current()
        return work.effect(key, attempt.token, attempt.downstream_key("effect"))

    def ask(key: str) -> Told:
        outcome = run.outcome(key)
        return Told(outcome.value, not outcome.duplicate)

    return ask


def job(work: Work) -> Ask:
    """The function that a queue calls."""
    once = work.once()

    def run(job: dict[str, str]) -> str:
        attempt = current()
        return work.effect(job["key"], attempt.token, attempt.downstream_key("effect"))

    wrapped: Any = handler(
        once,
        lambda job: job["key"],
        run,
        scope=SCOPE,
        reconcile=work.reconciler,
        policy=work.policy,
    )

    def ask(key: str) -> Told:
        outcome = wrapped.outcome({"key": key})
        return Told(outcome.value, not outcome.duplicate)

    return ask


def coroutine(work: Work, stack: AsyncExitStack) -> AskAsync:
    """A decorated coroutine function."""
    once = work.once()
    stack.push_async_callback(once.aclose)

    @once("{key}", scope=SCOPE, reconcile=work.reconciler)
    async def run(key: str) -> str:
        attempt = current_async()
        return await work.effect_async(key, attempt.token, attempt.downstream_key("effect"))

    async def ask(key: str) -> Told:
        outcome = await run.outcome(key)
        return Told(outcome.value, not outcome.duplicate)

    return ask


REFUSALS: dict[str, type[OncekeyError]] = {
    "urn:oncekey:in-progress": InProgressError,
    "urn:oncekey:outcome-unknown": LeaseLostError,  # nothing is held in the modes it is tried in
    "urn:oncekey:store-unavailable": NotRecordedError,  # before the effect or after it
}


def http(work: Work, stack: AsyncExitStack) -> AskAsync:
    """A service behind the middleware, and a client that sends the key in a header."""
    once = work.once()
    stack.push_async_callback(once.aclose)

    async def pay(request: Request) -> PlainTextResponse:
        attempt = current_async()
        key = request.headers["Idempotency-Key"]
        downstream = attempt.downstream_key("effect")
        return PlainTextResponse(await work.effect_async(key, attempt.token, downstream))

    app = Starlette(routes=[Route("/pay", pay, methods=["POST"])])
    guarded = IdempotencyMiddleware(app, once, scope=None, policy=work.policy)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(guarded),
        base_url="http://service",
    )
    stack.push_async_callback(client.aclose)

    async def ask(key: str) -> Told:
        answer = await client.post("/pay", headers={"Idempotency-Key": key}, content=b"{}")
        if answer.status_code == 200:
            return Told(answer.text, "Idempotent-Replayed" not in answer.headers)
        kind = answer.json()["type"]
        raise REFUSALS[kind](answer.json().get("detail", kind))

    return ask


def leased(work: Work) -> Ask:
    """A consumer whose claim is committed first."""
    inbox = _inbox(work)
    points = work.points

    def ask(key: str) -> Told:
        points.passing("before_claim")
        with inbox.leased(Message(id=key)) as delivery:
            points.passing("after_claim")
            if not delivery.duplicate:
                downstream = delivery.downstream_key("effect")
                value = work.effect(key, delivery.number, downstream)
                points.passing("before_settle")
                delivery.complete(value)
                points.passing("after_settle")
            return Told(delivery.result, not delivery.duplicate)

    return ask


def atomic(work: Work) -> Ask:
    """A consumer whose claim, effect and completion are one transaction of its database."""
    inbox = _inbox(work)
    points = work.points
    transaction = own_transaction(work.spec.place)

    def ask(key: str) -> Told:
        points.passing("before_claim")
        with (
            transaction() as connection,
            inbox.atomic(connection.handle, Message(id=key)) as delivery,
        ):
            points.passing("after_claim")
            if not delivery.duplicate:
                points.passing("before_effect")
                value = work.value(key)
                connection.write(key, value)
                points.passing("after_effect")
                points.passing("before_settle")
                delivery.complete(value)
                points.passing("after_settle")
            return Told(delivery.result, not delivery.duplicate)

    return ask


def naive(work: Work) -> Ask:
    """What people write without the product: look whether it was done, do it, note that it was.

    The matrix runs it to see that it would see a product that does not keep its promises.
    """
    once = work.once()

    def ask(key: str) -> Told:
        work.points.passing("before_claim")
        found = once.read_result(key)
        work.points.passing("after_claim")
        if found is not None:
            return Told(str(found), ran=False)
        value = work.effect(key, 1, key)
        work.points.passing("before_settle")
        once.keep_result(key, value, "1h")
        work.points.passing("after_settle")
        return Told(value, ran=True)

    return ask


def _inbox(work: Work) -> Inbox:
    spec = work.spec
    return Inbox(
        spec.place,
        "matrix",
        lease=spec.lease,
        ttl=spec.ttl,
        wait=spec.wait,
        on_crash="hold" if spec.mode == "held" else "retry",
        max_attempts=spec.max_attempts,
        observers=[work.observe],
    )


BLOCKING = {
    "function": function,
    "job": job,
    "leased": leased,
    "atomic": atomic,
    "naive": naive,
}
AWAITING = {"coroutine": coroutine, "http": http}
