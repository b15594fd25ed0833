"""Peers that protect a function, opened through their public API as their own pages say.

All of them fit the versions that we run on ourselves, so that they run in this process, over the
same drivers. Where a setting can only cost them time it is left out: none has a fingerprint of the
arguments, a metric or a log of its own, and each has as many connections as it takes by default.
"""

from __future__ import annotations

import sqlite3
import sys
from asyncio import Runner
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peers import folders
from bench.peers.folders import FOLDER
from oncekey import Once

_VERSIONS: Final = Path(__file__).parents[2] / "constraints.txt"
WANTED: Final = {
    "aws-lambda-powertools": ["aws-lambda-powertools[redis,aws-sdk]==3.37.0"],
    "exactly-once": ["exactly-once[redis,postgres]==0.2.1"],
    "idempotency-kit": ["idempotency-kit[redis]==0.5.0"],
    "idemkit": ["idemkit[redis,postgres]==1.0.2"],
    "dbos": ["dbos==3.3.0"],
}

Blocking = Callable[[str, int], str]
Waiting = Callable[[str, int], Awaitable[str]]


class Ways(NamedTuple):
    """How a side is called: by a caller that blocks, and by a task. None where it cannot be."""

    blocking: Blocking | None
    waiting: Waiting | None


class Bodies(NamedTuple):
    """The function that is protected, in both colours."""

    blocking: Blocking
    waiting: Waiting


def install() -> None:
    """What can be had is there, in the versions that the environment has."""
    folders.install({_folder(name): WANTED[name] for name in WANTED}, "-c", str(_VERSIONS))


def installed(name: str) -> bool:
    """Whether it can be imported from now on. What the environment has is found there first."""
    if not folders.installed(_folder(name)):
        return False
    place = str(FOLDER / _folder(name))
    if place not in sys.path:
        sys.path.append(place)
    return True


def blocks(name: str) -> bool:
    """Whether it has a way for callers that block."""
    return name != "idempotency-kit"


def waits(name: str) -> bool:
    """Whether it has a way for coroutines."""
    return name != "aws-lambda-powertools"


def _folder(name: str) -> str:
    return f"function-{name}"


@contextmanager
def ours(url: str, bodies: Bodies, runner: Runner) -> Iterator[Ways]:
    """Every setting at its default, but for the local cache: every duplicate asks the store."""
    once = Once(url, cache=False)
    protect = once("charge:{order}", scope="bench")
    yield Ways(protect(bodies.blocking), protect(bodies.waiting))
    runner.run(once.aclose())
    once.close()


# Types know nothing of the peers: each is imported when it is opened.


@contextmanager
def powertools(url: str, bodies: Bodies, _: Runner) -> Iterator[Ways]:
    """Its Redis layer. It has no way for coroutines."""
    peer: Any = import_module("aws_lambda_powertools.utilities.idempotency")
    layer = import_module("aws_lambda_powertools.utilities.idempotency.persistence.redis")
    store = layer.RedisCachePersistenceLayer(url=url)
    config = peer.IdempotencyConfig()
    config.register_lambda_context(_FiveMinutes())
    protect = peer.idempotent_function(
        data_keyword_argument="order", persistence_store=store, config=config
    )
    charge = protect(bodies.blocking)
    yield Ways(lambda order, amount: charge(order=order, amount=amount), None)
    store.client.close()


class _FiveMinutes:
    """What Lambda tells a handler about the time that is left."""

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


@contextmanager
def exactly_once(url: str, bodies: Bodies, runner: Runner) -> Iterator[Ways]:
    """On any store that it has."""
    peer: Any = import_module("exactly_once")
    make = {"redis": peer.Store.redis, "postgresql": peer.Store.postgres}
    kind = url.partition(":")[0]
    store = (
        peer.Store.sqlite(url.removeprefix("sqlite:///")) if kind == "sqlite" else make[kind](url)
    )
    protect = peer.once(store, key=lambda order, _: f"charge:{order}")
    yield Ways(protect(bodies.blocking), protect(bodies.waiting))
    if kind != "sqlite":
        runner.run(store.aclose())
    store.close()


@contextmanager
def idempotency_kit(url: str, bodies: Bodies, runner: Runner) -> Iterator[Ways]:
    """Its Redis repository. It has no way for callers that block."""
    peer: Any = import_module("idempotency_kit")
    kept = import_module("idempotency_kit.infra.storage.redis.aio")
    client = import_module("redis.asyncio").Redis.from_url(url)
    coordinator = peer.AsyncIdempotencyCoordinator(
        kept.RedisAsyncIdempotencyRepository(client), peer.IdempotencyDomainService()
    )

    class Charging:
        """As its first page has it: the coordinator is an attribute of what is called."""

        def __init__(self) -> None:
            self.coordinator = coordinator

        @peer.async_idempotent(  # type: ignore[untyped-decorator]  # the peer is not seen
            operation="charge",
            adapter=peer.JsonResultAdapter(),
            key_param="order",
            infra_param="coordinator",
        )
        async def charge(self, order: str, amount: int) -> str:
            return await bodies.waiting(order, amount)

    yield Ways(None, Charging().charge)
    runner.run(client.aclose())


@contextmanager
def idemkit(url: str, bodies: Bodies, runner: Runner) -> Iterator[Ways]:
    """On Redis or PostgreSQL. Callers that block go through a loop of its own."""
    peer: Any = import_module("idemkit")
    if url.startswith("postgresql:"):
        runner.run(import_module("idemkit.backends.postgres").init_pg(url))
        kind = peer.PostgresBackend
    else:
        kind = peer.RedisBackend
    config = peer.MethodConfig(key_fields=["order"], scope=lambda: "bench")
    backend, behind = kind.from_url(url), kind.from_url(url)
    yield Ways(
        peer.idempotent_sync(backend=behind, config=config)(bodies.blocking),
        peer.idempotent(backend=backend, config=config)(bodies.waiting),
    )
    runner.run(backend.aclose())
    import_module("idemkit.core.sync_bridge").run_sync(behind.aclose())


@contextmanager
def dbos(url: str, bodies: Bodies, _: Runner) -> Iterator[Ways]:
    """On PostgreSQL or SQLite. There is one in a process at a time."""
    peer: Any = import_module("dbos")
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.execute("PRAGMA journal_mode = WAL")  # it stays; otherwise it would be slower
    peer.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "CRITICAL",
        }
    )
    charge = peer.DBOS.workflow(name="charge")(bodies.blocking)
    charge_async = peer.DBOS.workflow(name="charge_async")(bodies.waiting)
    peer.DBOS.launch()

    def blocking(order: str, amount: int) -> str:
        with peer.SetWorkflowID(order):
            result: str = charge(order, amount)
        return result

    async def waiting(order: str, amount: int) -> str:
        with peer.SetWorkflowID(f"{order}-async"):
            result: str = await charge_async(order, amount)
        return result

    yield Ways(blocking, waiting)
    peer.DBOS.destroy(destroy_registry=True)


Opener = Callable[[str, Bodies, Runner], AbstractContextManager[Ways]]
OPENERS: Final[dict[str, Opener]] = {
    "aws-lambda-powertools": powertools,
    "exactly-once": exactly_once,
    "idempotency-kit": idempotency_kit,
    "idemkit": idemkit,
    "dbos": dbos,
}
