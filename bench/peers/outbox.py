"""Other outboxes, opened as their own pages say, with settings under which they are fast."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from bench.peers import folders
from bench.peers.folders import FOLDER

_VERSIONS: Final = Path(__file__).parents[2] / "constraints.txt"
FASTSTREAM: Final = "faststream-outbox"
DJANGO: Final = "django-outbox-pattern"
WANTED: Final = {
    FASTSTREAM: ["faststream-outbox[asyncpg]==0.19.0"],
    DJANGO: ["django-outbox-pattern==3.2.1"],
}
WORKERS: Final = 16
"""Each has a connection of its own."""
_AT_ONCE: Final = 100
"""As many as ours takes in a batch."""


def install() -> None:
    """What can be had is there, in the versions that the environment has."""
    folders.install({f"outbox-{name}": WANTED[name] for name in WANTED}, "-c", str(_VERSIONS))


def installed(name: str) -> bool:
    """Whether it can be imported from now on. What the environment has is found there first."""
    folder = f"outbox-{name}"
    if not folders.installed(folder):
        return False
    place = str(FOLDER / folder)
    if place not in sys.path:
        sys.path.append(place)
    return True


# Types know nothing of the peers: each is imported when it is opened.


class FastStreamOutbox(NamedTuple):
    """How a message is put, how many are, and how they are waited for."""

    put: Callable[[AsyncSession, str], Awaitable[object]]
    start: Callable[[], Awaitable[None]]
    fill: Callable[[int], Awaitable[None]]
    sent: Callable[[], Awaitable[None]]


@asynccontextmanager
async def faststream(
    url: str, engine: AsyncEngine, nats_url: str, subject: str
) -> AsyncIterator[FastStreamOutbox]:
    """A relay to a stream of JetStream, which confirms each message, once it is started."""
    from faststream.nats import NatsBroker

    peer: Any = import_module("faststream_outbox")
    metadata = MetaData()
    table = peer.make_outbox_table(metadata, table_name="outbox")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    broker = peer.OutboxBroker(engine, outbox_table=table, logger=None)
    nats = NatsBroker(nats_url, logger=None)
    publisher = nats.publisher(f"{subject}.peer", stream=subject)

    subscriber: Any = broker.subscriber(
        "orders",
        max_workers=WORKERS,
        fetch_batch_size=_AT_ONCE,
        terminal_flush_batch_size=_AT_ONCE,
        min_fetch_interval=0.01,
        max_fetch_interval=0.05,
    )

    async def relay(body: dict[str, str]) -> dict[str, str]:
        return body

    publisher(subscriber(relay))

    async def put(session: AsyncSession, order: str) -> None:
        await broker.publish({"order": order}, queue="unread", session=session)

    async def fill(count: int) -> None:
        async with AsyncSession(engine) as session, session.begin():
            bodies = [{"order": f"o-{number}"} for number in range(count)]
            await broker.publish_batch(*bodies, queue="orders", session=session)

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as own:

        async def sent() -> None:
            found = "SELECT 1 FROM outbox WHERE queue = 'orders' LIMIT 1"
            while await (await own.execute(found)).fetchone():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)

        await nats.connect()
        await broker.connect()
        try:
            yield FastStreamOutbox(put, broker.start, fill, sent)
        finally:
            await broker.stop()
            await nats.stop()


class DjangoOutbox(NamedTuple):
    """Django's connection, and how messages are put and sent."""

    connection: Any
    atomic: Callable[[], Any]
    put: Callable[[str], object]
    fill: Callable[[int], object]
    relay: Callable[[], object]


class _Nowhere:
    """A connection of STOMP that takes everything at once."""

    def send(self, **_: object) -> None: ...
    def connect(self, *_: object, **__: object) -> None: ...
    def disconnect(self, *_: object, **__: object) -> None: ...
    def set_listener(self, *_: object) -> None: ...
    def is_connected(self) -> bool:
        return True


@contextmanager
def django(url: str) -> Iterator[DjangoOutbox]:
    """Its table, and its producer without a broker and without its pause between two looks."""
    import django as framework  # type: ignore[import-untyped]  # it has no types
    from django.conf import settings  # type: ignore[import-untyped]  # as above

    told = psycopg.conninfo.conninfo_to_dict(url)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": told["dbname"],
                "USER": told["user"],
                "PASSWORD": told["password"],
                "HOST": told["host"],
                "PORT": str(told["port"]),
            }
        },
        INSTALLED_APPS=["django_outbox_pattern"],
        DJANGO_OUTBOX_PATTERN={"DEFAULT_PRODUCER_WAITING_TIME": 0},
        USE_TZ=True,
    )
    framework.setup()
    from django.core.management import call_command  # type: ignore[import-untyped]  # as above
    from django.db import connection, transaction  # type: ignore[import-untyped]  # as above

    call_command("migrate", verbosity=0)
    models: Any = import_module("django_outbox_pattern.models")
    producers: Any = import_module("django_outbox_pattern.producers")
    producer = producers.Producer(_Nowhere(), "guest", "guest")
    published = models.Published

    def put(order: str) -> None:
        published.objects.create(destination="orders.paid", body={"order": order})

    def fill(count: int) -> None:
        published.objects.bulk_create(
            published(destination="orders.paid", body={"order": f"o-{number}"})
            for number in range(count)
        )

    try:
        yield DjangoOutbox(
            connection, transaction.atomic, put, fill, producer.publish_message_from_database
        )
    finally:
        connection.close()
