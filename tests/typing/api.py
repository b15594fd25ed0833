"""The public API as users write it: checked by mypy and pyright, never run."""

from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from oncekey import (
    AsyncAttempt,
    Attempt,
    Done,
    InProgressError,
    NotDone,
    NotRecordedError,
    Once,
    Outcome,
    Policy,
    Record,
    RememberedError,
    StoreError,
    Unknown,
    current,
    current_async,
)
from oncekey.observe import Event
from oncekey.observe.log import LogObserver
from oncekey.stores import AsyncStore, MemoryStore, SQLiteStore, Store, open_store


@dataclass
class Order:
    """What is bought."""

    id: str
    total: int


@dataclass
class Receipt:
    """What the buyer gets."""

    number: int


class CardDeclinedError(Exception):
    """The bank said no."""


# A Once of every kind


def count(event: Event, /) -> None:
    """Count the event."""
    assert_type(event.key, str)
    assert_type(event.seconds, float)


once = Once("memory://")
Once()
Once(MemoryStore(), scope="billing", cache="4MiB", observers=[LogObserver(), count], active=False)
Once(SQLiteStore("records.db"), prefix="shop:", cache=False, policy=Policy(ttl="7d", wait=0))
assert_type(open_store("memory://"), Store)


def with_a_store(store: Store, awaited: AsyncStore) -> tuple[Once, Once]:
    """Any class with the verbs is a store."""
    return Once(store), Once(awaited)


# Functions and coroutine functions


def reconcile(record: Record) -> Done | NotDone | Unknown:
    """Ask the bank."""
    assert_type(record.attempt, int)
    assert_type(record.notes, dict[str, Any])
    return Done(Receipt(7)) if record.notes.get("sent") else NotDone()


@once(
    "charge:{order.id}",
    scope="billing",
    fingerprint=("order.id", "order.total"),
    reconcile=reconcile,
    label="charge",
    policy=Policy(on_crash="hold"),
    ttl="24h",
    lease=timedelta(minutes=5),
    heartbeat=True,
    max_run=900,
    wait=2.5,
    retry_after="1s",
    on_error="release",
    keep=(CardDeclinedError,),
    uncertain=TimeoutError,
    on_crash="retry",
    max_attempts=3,
    fail_mode="closed",
    max_result="64KiB",
    quiet=0,
)
def charge(order: Order, *, note: str = "") -> Receipt:
    """Charge the card."""
    attempt = current()
    assert_type(attempt, Attempt)
    assert_type(attempt.downstream_key("charge"), str)
    return Receipt(len(order.id + note))


@once(lambda order: f"send:{order.id}", fingerprint=None)
async def send(order: Order) -> Receipt:
    """Send the parcel."""
    attempt = current_async()
    assert_type(attempt, AsyncAttempt)
    await attempt.note(parcel=7)
    return Receipt(order.total)


order = Order("A-7", 500)
assert_type(charge(order), Receipt)
assert_type(charge(order, note="gift"), Receipt)
assert_type(charge.outcome(order), Outcome[Receipt])
assert_type(charge.outcome(order).value, Receipt)
assert_type(charge.outcome(order).duplicate, bool)
assert_type(charge.outcome(order).attempt, int)
assert_type(charge.key(order), str)
assert_type(charge.record(order), Record | None)
assert_type(charge.forget(order), bool)
charge("A-7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # an order is wanted
charge(order, gift=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # not there


async def send_it() -> None:
    """A coroutine function is protected as one."""
    assert_type(await send(order), Receipt)
    outcome = await send.outcome(order)
    assert_type(outcome, Outcome[Receipt])
    assert_type(outcome.value.number, int)
    assert_type(send.key(order), str)
    assert_type(await send.record(order), Record | None)
    assert_type(await send.forget(order), bool)


# Runs


def add(a: int, b: int = 0) -> int:
    """A sum."""
    return a + b


async def add_async(a: int, b: int = 0) -> int:
    """A sum, later."""
    return a + b


assert_type(once.run("sum:1", add, 1, b=2), int)
assert_type(once.options(ttl="7d", scope="sums", reference="trace-1").run("sum:1", add, 1), int)
assert_type(once.options(policy=Policy(keep=ValueError), label="sum"), Once)


async def run_it() -> None:
    """The value is awaited, and of the function's type."""
    assert_type(await once.run_async("sum:2", add_async, 1, b=2), int)


# Attempts


def load(path: str) -> list[str]:
    """The rows of a file."""
    return [path]


async def load_async(path: str) -> list[str]:
    """The rows of a file, later."""
    return [path]


def attempt_it() -> object:
    """A block that blocks."""
    with once.attempt("import:42", fingerprint=b"body", returns=list[str]) as attempt:
        assert_type(attempt, Attempt)
        if not attempt.duplicate:
            attempt.note(upload="u-7")
            rows = attempt.step("load", load, "a.csv")
            assert_type(rows, list[str])
            assert_type(attempt.token, int)
            assert_type(attempt.number, int)
            assert_type(attempt.key, str)
            assert_type(attempt.scope, str | None)
            assert_type(attempt.lost, bool)
            assert_type(attempt.uncertain, bool)
            assert_type(attempt.protected, bool)
            assert_type(attempt.notes, dict[str, Any])
            assert_type(attempt.record, Record)
            attempt.complete(rows)
        return attempt.result


async def attempt_it_async() -> object:
    """A block that awaits."""
    async with once.attempt("import:43") as attempt:
        assert_type(attempt, AsyncAttempt)
        if not attempt.duplicate:
            await attempt.note(upload="u-7")
            assert_type(await attempt.step("load", load_async, "a.csv"), list[str])
            await attempt.complete()
        return attempt.result


# Records, by hand


def look() -> None:
    """What people do to records."""
    record = once.get("import:42", scope=None)
    assert_type(record, Record | None)
    if record is not None:
        assert_type(record.failure, str)
        assert_type(record.steps, tuple[str, ...])
    assert_type(once.scan(scope="billing", status="held"), Iterator[Record])
    assert_type(once.forget("import:42", force=True), bool)
    assert_type(once.resolve("import:42", result=None), bool)
    assert_type(once.resolve("import:42", error=CardDeclinedError()), bool)
    assert_type(once.resolve("import:42", retry=True), bool)
    assert_type(once.purge(grace="7d", progress=print), int)
    assert_type(once.check("seen:1", "1h"), bool)
    once.keep_result("seen:1", {"ok": True}, timedelta(hours=1))
    once.read_result("seen:1", default=None)
    once.scan(status="gone")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no status
    once.close()


async def look_async() -> None:
    """The same, awaited."""
    assert_type(await once.get_async("import:42"), Record | None)
    assert_type(once.scan_async(), AsyncIterator[Record])
    async for record in once.scan_async(status="completed"):
        assert_type(record, Record)
    assert_type(await once.forget_async("import:42"), bool)
    assert_type(await once.resolve_async("import:42", retry=True), bool)
    assert_type(await once.purge_async(), int)
    assert_type(await once.check_async("seen:1"), bool)
    await once.keep_result_async("seen:1", [1])
    await once.read_result_async("seen:1")
    await once.aclose()


# Errors carry facts


def tell(error: Exception) -> object:
    """Facts are attributes with types."""
    if isinstance(error, InProgressError):
        assert_type(error.retry_after, float)
        assert_type(error.key, str)
        assert_type(error.scope, str | None)
    if isinstance(error, RememberedError):
        assert_type(error.type_name, str)
    if isinstance(error, StoreError):
        assert_type(error.happened, bool | None)
    if isinstance(error, NotRecordedError):
        return error.result
    return None


# Methods


class Shop:
    """Somewhere to buy."""

    @once("order:{number}")
    def order(self, number: int) -> Receipt:
        """Order by number."""
        return Receipt(number)

    @once("deliver:{number}")
    async def deliver(self, number: int) -> Receipt:
        """Deliver by number."""
        return Receipt(number)

    @staticmethod
    @once("wrap:{number}")
    def wrap(number: int) -> Receipt:
        """Wrap by number."""
        return Receipt(number)

    @once("tie:{number}")
    @staticmethod
    async def tie(number: int) -> Receipt:
        """Tie by number."""
        return Receipt(number)


shop = Shop()
assert_type(shop.order(7), Receipt)
assert_type(shop.order.outcome(7).value, Receipt)
assert_type(shop.order.key(7), str)
assert_type(Shop.order.outcome(shop, 7).value, Receipt)
assert_type(Shop.order.__name__, str)
delivered: Coroutine[Any, Any, Receipt] = shop.deliver(7)
assert_type(Shop.wrap(7), Receipt)
assert_type(Shop.wrap.outcome(7).value, Receipt)
tied: Coroutine[Any, Any, Receipt] = Shop.tie(7)

# A policy of one's own

Policy(ttl="24h", keep=(ValueError, KeyError), max_attempts=None)
Policy(on_crash="wait")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no choice
once("k", tll="1h")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no field
