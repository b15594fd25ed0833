"""The outbox on PostgreSQL: what a put costs, and how fast relays are, alone and beside others."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import nats
import psycopg
from msgspec import json
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from bench.peers import outbox as peers
from bench.report.rows import LEAST_SPEED, Row
from bench.settings import Settings
from bench.subject import new_order
from bench.timing import Side, Spread, Tick, Timings, interleave, spread_of, without_collector
from oncekey.outbox import AsyncOutbox, AsyncRelay, Message, Outbox, OutboxMessage, RelayEvent
from tests.servers.nats import NatsServer
from tests.servers.postgres import PostgresServer, binaries, serving
from tests.servers.programs import MissingProgramError

if TYPE_CHECKING:
    from nats.js import JetStreamContext

_MOST_PUT: Final = 1.25
_LEAST_RELAYED: Final = 0.4
_MOST_LATENCY: Final = 5.0
_MOST_GROWTH: Final = 1.2
_AT_ONCE: Final = 100
"""Messages that the bare client publishes at the same time; as many are in a batch of ours."""
_SAMPLES: Final = 5
TABLE: Final = "CREATE TABLE orders (id bigserial PRIMARY KEY, number text NOT NULL, total int)"
_WRITE: Final = "INSERT INTO orders (number, total) VALUES (%s, %s)"
BY_HAND: Final = (
    "CREATE TABLE by_hand (number bigserial PRIMARY KEY, id text NOT NULL UNIQUE, "
    "destination text NOT NULL, type text NOT NULL, body bytea NOT NULL, "
    "created_at timestamptz NOT NULL DEFAULT clock_timestamp())"
)
_WRITE_BY_HAND: Final = (
    "INSERT INTO by_hand (id, destination, type, body) VALUES (%s, 'orders.paid', 'order.paid', %s)"
)
_HASTY: Final = "?options=-csynchronous_commit%3Doff"
_SUBJECT: Final = "bench"
_FILL: Final = """
    INSERT INTO outbox_messages (message_id, destination, message_key, message_type, attributes,
        body, created_at, due_at, status, sent_at)
    SELECT 'old-' || clock_timestamp() || n, 'bench.ours', NULL, 'order.paid', '{}',
        convert_to('{"order":"o-' || n || '"}', 'UTF8'), now(), now(), %s,
        CASE WHEN %s = 'sent' THEN now() END
    FROM generate_series(1, %s) AS n
"""
_TOLD: Final = """
    SELECT 1 FROM outbox_messages_schema WHERE listening_until > statement_timestamp()
"""
_WAKE: Final = """
    SELECT pg_notify('oncekey_outbox', identity) FROM outbox_messages_schema
"""
_RELAY: Final = "from oncekey.cli.main import main; main()"
_ABSENT: Final = "no PostgreSQL or no nats-server was found"


class Figures(NamedTuple):
    """Rates or seconds of both sides, the median over the rounds, and the spread of the ratio."""

    value: float
    against: float
    ratio: Spread


class Places(NamedTuple):
    """Where everything is measured."""

    postgres: PostgresServer
    nats: NatsServer
    settings: Settings
    tick: Tick


def turns(settings: Settings) -> int:
    """How often a run with all servers and peers ticks."""
    return _rounds(settings) * (5 + 1 + 1 + 2 + 1 + 1) + 2


def _rounds(settings: Settings) -> int:
    """How often each side takes its turn: fewer times than elsewhere, for more messages each."""
    return max(2, settings.rounds // 3)


def outbox_rows(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """Rows for putting, sending and waiting, and for each peer that can be had."""
    if settings.fetch:
        peers.install()
    try:
        binaries()
        server = NatsServer(folder).start()
    except (MissingProgramError, RuntimeError):
        return _rows(None, None, None, None, [None] * 4)
    try:
        with serving(beside=folder.parent, durable=True) as postgres:
            places = Places(postgres, server, settings, tick)
            put, relay = _put(places), _relay(places)
            latency, growth = _latency(places), _growth(places)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what peers warn of is not about this program
                held = [*_faststream(places), *_django(places)]
    finally:
        server.stop()
    return _rows(put, relay, latency, growth, held)


# What a put adds to a transaction


def _put(places: Places) -> Timings:
    url, settings = places.postgres.new_database(), places.settings
    sides: dict[str, Side] = {}
    with ExitStack() as opened:
        outbox = opened.enter_context(closing(Outbox(url)))
        outbox.migrate()
        for name, way in {"": url, " hasty": url + _HASTY}.items():
            connection = opened.enter_context(psycopg.connect(way, autocommit=True))
            if not name:
                connection.execute(TABLE)
                connection.execute(BY_HAND)
                by_hand = transactions(connection, partial(put_by_hand, connection))
                sides["hand"] = Side(by_hand, settings.commits)
            put = partial(put_one, outbox, connection)
            sides[f"raw{name}"] = Side(transactions(connection), settings.commits)
            sides[f"put{name}"] = Side(transactions(connection, put), settings.commits)
        return interleave(sides, rounds=_rounds(settings), tick=places.tick)


def put_one(outbox: Outbox, connection: psycopg.Connection, number: str) -> None:
    message = Message(type="order.paid", body={"order": number})
    outbox.put(connection, message, to="orders.paid")


def put_by_hand(connection: psycopg.Connection, number: str) -> None:
    connection.execute(_WRITE_BY_HAND, (number, json.encode({"order": number})))


def transactions(
    connection: psycopg.Connection, put: Callable[[str], None] | None = None
) -> Callable[[int], None]:
    def work(calls: int) -> None:
        for _ in range(calls):
            number = new_order()
            with connection.transaction():
                connection.execute(_WRITE, (number, 40))
                if put is not None:
                    put(number)

    return work


# How fast a relay sends


class _Running:
    """A relay at work, which is woken when an outbox was filled."""

    def __init__(self, url: str, to: Any) -> None:
        self._url = url
        self._sent, self._wanted, self._done = 0, 1, asyncio.Event()
        # It must not look by itself: what it sent before the clock ran would not be counted.
        where = {f"{_SUBJECT}.*": to}
        self._relay = AsyncRelay(url, where, poll="1h", observers=[self._happened])
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Let it send a message first, so that its connections are open."""
        await asyncio.to_thread(_fill, self._url, 1)
        self._task = asyncio.create_task(self._relay.run())
        await self._done.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._relay.stop()
        assert self._task is not None
        await self._task
        await self._relay.aclose()

    async def seconds(self, count: int) -> float:
        """Return how long it takes to send what is there, which is as many messages."""
        self._sent, self._wanted, self._done = 0, count, asyncio.Event()
        with without_collector(), psycopg.connect(self._url, autocommit=True) as connection:
            began = time.perf_counter()
            connection.execute(_WAKE)
            await self._done.wait()
            return time.perf_counter() - began

    def _happened(self, event: RelayEvent) -> None:
        self._sent += event.count if event.name == "sent" else 0
        if self._sent >= self._wanted:
            self._done.set()


def _relay(places: Places) -> Figures:
    """The relay empties an outbox; the bare client publishes as many, with the same headers."""
    with asyncio.Runner() as runner:
        return runner.run(_relay_and_bare(places))


async def _relay_and_bare(places: Places) -> Figures:
    url, settings = places.postgres.new_database(), places.settings
    count = settings.commits * 20
    ours, bare = [], []
    client = await nats.connect(places.nats.url)
    stream = client.jetstream()
    await stream.add_stream(name=_SUBJECT, subjects=[f"{_SUBJECT}.>"])
    outbox = AsyncOutbox(url)
    await outbox.migrate()
    async with _Running(url, places.nats.url) as relay:
        for _ in range(_rounds(settings)):
            await asyncio.to_thread(_fill, url, count)
            ours.append(count / await relay.seconds(count))
            with without_collector():
                began = time.perf_counter()
                await _publish(stream, count)
                bare.append(count / (time.perf_counter() - began))
            places.tick()
    await outbox.aclose()
    await client.close()
    return _figures(ours, bare)


async def _publish(stream: JetStreamContext, count: int) -> None:
    for first in range(0, count, _AT_ONCE):
        async with asyncio.TaskGroup() as group:
            for number in range(first, min(count, first + _AT_ONCE)):
                headers = {"type": "order.paid", "Nats-Msg-Id": new_order()}
                body = b'{"order":"o-%d"}' % number
                group.create_task(stream.publish(f"{_SUBJECT}.bare", body, headers=headers))


def _fill(url: str, count: int, status: str = "pending") -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_FILL, (status, status, count))
        connection.execute("VACUUM ANALYZE outbox_messages")


def _figures(ours: list[float], theirs: list[float]) -> Figures:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Figures(statistics.median(ours), statistics.median(theirs), spread_of(ratios))


# How long it takes from a commit to the broker


def _latency(places: Places) -> Figures:
    """The relay is a process of its own and idle, and NOTIFY wakes it."""
    url, settings = places.postgres.new_database(), places.settings
    ours, bare = [], []
    with (
        asyncio.Runner() as runner,
        closing(Outbox(url)) as outbox,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        outbox.migrate()
        client = runner.run(nats.connect(places.nats.url))
        stream = client.jetstream()
        heard = runner.run(client.subscribe(f"{_SUBJECT}.latency"))

        async def one(send: Callable[[], Awaitable[float]]) -> float:
            begun = await send()
            await heard.next_msg(60)
            return time.perf_counter() - begun

        async def put() -> float:
            while not connection.execute(_TOLD).fetchone():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)
            with connection.transaction():
                outbox.put(connection, Message(body=b"7"), to=f"{_SUBJECT}.latency")
            return time.perf_counter()

        async def publish() -> float:
            begun = time.perf_counter()
            headers = {"Nats-Msg-Id": new_order()}
            await stream.publish(f"{_SUBJECT}.latency", b"7", headers=headers)
            return begun

        with _relaying(url, places.nats.url):
            for _ in range(_rounds(settings)):
                ours.append(statistics.median(runner.run(one(put)) for _ in range(_SAMPLES)))
                bare.append(statistics.median(runner.run(one(publish)) for _ in range(_SAMPLES)))
                places.tick()
        runner.run(client.close())
    return _figures(ours, bare)


@contextmanager
def _relaying(url: str, to: str) -> Iterator[None]:
    words = [sys.executable, "-c", _RELAY, "relay", url, "--to", to]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


# Whether sent messages make it slower


def _growth(places: Places) -> Timings:
    """Messages are put and sent beside few and beside many that were sent before."""
    settings = places.settings
    sides: dict[str, Side] = {}
    with asyncio.Runner() as runner, ExitStack() as opened:
        for name, count in {"few": settings.few, "most": settings.most}.items():
            url = places.postgres.new_database()
            outbox = opened.enter_context(closing(Outbox(url)))
            outbox.migrate()
            _fill(url, count, "sent")
            connection = opened.enter_context(psycopg.connect(url, autocommit=True))
            connection.execute(TABLE)
            relay = AsyncRelay(url, _take)
            opened.callback(_close, relay, runner)
            sides[name] = Side(_puts_and_sends(connection, outbox, relay, runner), settings.commits)
            places.tick()
        return interleave(sides, rounds=_rounds(settings), tick=places.tick)


def _puts_and_sends(
    connection: psycopg.Connection, outbox: Outbox, relay: AsyncRelay, runner: asyncio.Runner
) -> Callable[[int], None]:
    puts = transactions(connection, partial(put_one, outbox, connection))

    def work(calls: int) -> None:
        puts(calls)
        assert runner.run(relay.drain()) == calls

    return work


def _close(relay: AsyncRelay, runner: asyncio.Runner) -> None:
    runner.run(relay.aclose())


async def _take(message: OutboxMessage) -> None:
    """A target that has it at once."""


# Others


def _faststream(places: Places) -> list[Figures | None]:
    """Puts in a session of SQLAlchemy on asyncpg, and relays to the same stream of JetStream."""
    if not peers.installed(peers.FASTSTREAM):
        return [None, None]
    url, settings = places.postgres.new_database(), places.settings
    with asyncio.Runner() as runner:
        return runner.run(_beside_faststream(url, places, settings))


async def _beside_faststream(url: str, places: Places, settings: Settings) -> list[Figures | None]:
    pool = {"pool_size": peers.WORKERS + 8}
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), **pool)
    async with engine.begin() as connection:
        await connection.execute(text(TABLE))
    outbox = AsyncOutbox(url)
    await outbox.migrate()
    count = settings.commits * 20
    puts: dict[str, list[float]] = {"ours": [], "theirs": []}
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}

    async def put(session: AsyncSession, order: str) -> None:
        message = Message(type="order.paid", body={"order": order})
        await outbox.put(session, message, to="orders.paid")  # which no relay sends here

    async def transactions(put: Callable[[AsyncSession, str], Awaitable[object]]) -> float:
        began = time.perf_counter()
        for _ in range(settings.commits):
            async with AsyncSession(engine) as session, session.begin():
                order = new_order()
                await session.execute(
                    text("INSERT INTO orders (number, total) VALUES (:number, 40)"),
                    {"number": order},
                )
                await put(session, order)
        return settings.commits / (time.perf_counter() - began)

    async with peers.faststream(url, engine, places.nats.url, _SUBJECT) as theirs:
        for _ in range(_rounds(settings)):
            puts["ours"].append(await transactions(put))
            puts["theirs"].append(await transactions(theirs.put))
        await theirs.start()
        async with _Running(url, places.nats.url) as relay:
            for _ in range(_rounds(settings)):
                await asyncio.to_thread(_fill, url, count)
                rates["ours"].append(count / await relay.seconds(count))
                await theirs.fill(count)
                began = time.perf_counter()  # it begins to send when that is committed
                await theirs.sent()
                rates["theirs"].append(count / (time.perf_counter() - began))
                places.tick()
    await outbox.aclose()
    await engine.dispose()
    return [_figures(**_sides(puts)), _figures(**_sides(rates))]


def _sides(both: dict[str, list[float]]) -> dict[str, list[float]]:
    return {"ours": both["ours"], "theirs": both["theirs"]}


def _django(places: Places) -> list[Figures | None]:
    """Puts on Django's connection, and relays that send nowhere: the peer speaks STOMP alone."""
    if not peers.installed(peers.DJANGO):
        return [None, None]
    url, settings = places.postgres.new_database(), places.settings
    count = settings.commits * 5  # the peer takes its time
    puts: dict[str, list[float]] = {"ours": [], "theirs": []}
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    with (
        peers.django(url) as theirs,
        closing(Outbox(url)) as outbox,
        asyncio.Runner() as runner,
    ):
        outbox.migrate()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)

        def ours(order: str) -> None:
            message = Message(type="order.paid", body={"order": order})
            outbox.put(theirs.connection, message, to="orders.paid")

        def transactions(put: Callable[[str], Any]) -> float:
            began = time.perf_counter()
            for _ in range(settings.commits):
                order = new_order()
                with theirs.atomic():
                    with theirs.connection.cursor() as cursor:
                        cursor.execute(_WRITE, (order, 40))
                    put(order)
            return settings.commits / (time.perf_counter() - began)

        for _ in range(_rounds(settings)):
            puts["ours"].append(transactions(ours))
            puts["theirs"].append(transactions(theirs.put))
        theirs.relay()  # what was put
        relay = runner.run(_Running(url, _take).__aenter__())
        for _ in range(_rounds(settings)):
            _fill(url, count)
            theirs.fill(count)
            rates["ours"].append(count / runner.run(relay.seconds(count)))
            began = time.perf_counter()
            theirs.relay()
            rates["theirs"].append(count / (time.perf_counter() - began))
            places.tick()
        runner.run(relay.__aexit__())
    return [_figures(**_sides(puts)), _figures(**_sides(rates))]


# The rows


def _rows(
    put: Timings | None,
    relay: Figures | None,
    latency: Figures | None,
    growth: Timings | None,
    held: list[Figures | None],
) -> list[Row]:
    absent = "" if put is not None else _ABSENT
    return [
        _put_row(put),
        Row(
            id="outbox-relay",
            title="Outbox, one relay to NATS JetStream",
            value=relay.value if relay else 0.0,
            unit="messages/s",
            against=f"nats-py publishes with confirmation, {_AT_ONCE} at a time",
            against_value=relay.against if relay else None,
            ratio=relay.ratio if relay else None,
            target=f"at least {_LEAST_RELAYED}x",
            met=relay.ratio.median >= _LEAST_RELAYED if relay else None,
            remark=absent or "batches of 100, each leased, published and marked",
        ),
        Row(
            id="outbox-latency",
            title="Outbox, from a commit to a subscriber of NATS",
            value=latency.value * 1000 if latency else 0.0,
            unit="ms",
            against="nats-py publishes with confirmation",
            against_value=latency.against * 1000 if latency else None,
            ratio=latency.ratio if latency else None,
            target=f"at most {_MOST_LATENCY:g}x",
            met=latency.ratio.median <= _MOST_LATENCY if latency else None,
            remark=absent or "an idle relay in a process of its own, which NOTIFY wakes",
        ),
        _growth_row(growth),
        *(
            _peer_row(kind, peer, one, absent)
            for (kind, peer), one in zip(_PEER_ROWS, held, strict=True)
        ),
    ]


_PEER_ROWS: Final = (
    ("put", peers.FASTSTREAM),
    ("relay", peers.FASTSTREAM),
    ("put", peers.DJANGO),
    ("relay", peers.DJANGO),
)
_HOW: Final = {
    ("put", peers.FASTSTREAM): "a transaction in a session of SQLAlchemy on asyncpg",
    ("relay", peers.FASTSTREAM): (
        "to the same stream of JetStream; the peer has 16 workers, fetches 100 at a time and "
        "deletes 100 at a time"
    ),
    ("put", peers.DJANGO): "a transaction of Django",
    ("relay", peers.DJANGO): (
        "nothing is sent, since the peer speaks STOMP alone and waits for no confirmation; its "
        "pause of a second after each batch is left out"
    ),
}


def _put_row(timings: Timings | None) -> Row:
    cost = None if timings is None else timings.cost("put", "raw")
    remark = _ABSENT
    if timings is not None:
        remark = (
            f"the ratio is of times; a plain INSERT by hand into a table with the same two unique "
            f"indexes, without any check, cost {timings.cost('hand', 'raw').median:.2f}x; with "
            f"synchronous_commit=off a raw transaction took "
            f"{timings.per_call('raw hasty') * 1e6:,.0f} µs, and the ratio was "
            f"{timings.cost('put hasty', 'raw hasty').median:.2f}x"
        )
    return Row(
        id="outbox-put",
        title="Outbox, put in a transaction with one insert on PostgreSQL",
        value=0.0 if timings is None else 1 / timings.per_call("put"),
        unit="messages/s",
        against="the same transaction without the outbox",
        against_value=None if timings is None else 1 / timings.per_call("raw"),
        ratio=cost,
        target=f"at most {_MOST_PUT}x the time",
        met=None if cost is None else cost.median <= _MOST_PUT,
        remark=remark,
    )


def _growth_row(timings: Timings | None) -> Row:
    cost = None if timings is None else timings.cost("most", "few")
    return Row(
        id="outbox-growth",
        title="Outbox, put and sent beside a million sent messages",
        value=0.0 if timings is None else 1 / timings.per_call("most"),
        unit="messages/s",
        against="the same beside a thousand",
        against_value=None if timings is None else 1 / timings.per_call("few"),
        ratio=cost,
        target=f"at most {_MOST_GROWTH}x the time",
        met=None if cost is None else cost.median <= _MOST_GROWTH,
        remark=_ABSENT if timings is None else "",
    )


def _peer_row(kind: str, peer: str, figures: Figures | None, absent: str) -> Row:
    titles = {"put": "Outbox, put", "relay": "Outbox, one relay"}
    return Row(
        id=f"outbox-{kind}-{peer.partition('-')[0]}",
        title=f"{titles[kind]}, beside {peer}",
        value=figures.value if figures else 0.0,
        unit="messages/s",
        against=peer,
        against_value=figures.against if figures else None,
        ratio=figures.ratio if figures else None,
        target=f"at least {LEAST_SPEED}x",
        met=figures.ratio.median >= LEAST_SPEED if figures else None,
        remark=_HOW[kind, peer] if figures else absent or f"{peer} is not installed",
    )
