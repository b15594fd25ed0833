"""The inbox through a real PgBouncer: its own connections, and transactions of the caller."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from oncekey import ConfigurationError
from oncekey.messages import Inbox, Message
from oncekey.messages.connections.postgres import PostgresConnections
from oncekey.messages.table import Table
from oncekey.testing.conformance.base import DONE, Desk

HOUR = 3_600_000_000

with_transactions = pytest.mark.parametrize(
    "pgbouncer", ["session", "transaction"], indirect=True, scope="module"
)
without = pytest.mark.parametrize("pgbouncer", ["statement"], indirect=True, scope="module")


@with_transactions
def test_its_own_connections_claim_and_settle(pooled_url):
    """160 messages on 8 threads, on more connections than the pool has sessions."""

    def process(number):
        with closing(Table(PostgresConnections(pooled_url), HOUR)) as table:
            for turn in range(20):
                desk = Desk(table, lease=HOUR, ttl=HOUR, key=f"{number}-{turn}")
                owner = desk.grant("a")
                assert desk.renew(owner) is DONE
                assert desk.settle(owner) is DONE
                assert desk.get().status == "completed"
        return 20

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(process, range(8))) == 160


@with_transactions
def test_a_message_and_its_effect_share_a_transaction(pooled_url):
    with psycopg.connect(pooled_url) as connection:
        connection.execute("CREATE TABLE charged (id text)")

    def process(number):
        with psycopg.connect(pooled_url, prepare_threshold=None) as connection:
            for turn in range(10):
                message = Message(id=f"m-{(number + turn) % 10}", type="order.placed")
                with connection.transaction(), inbox.atomic(connection, message) as delivery:
                    if not delivery.duplicate:
                        connection.execute("INSERT INTO charged VALUES (%s)", [message.id])

    with closing(Inbox(pooled_url, consumer="billing")) as inbox, ThreadPoolExecutor(4) as pool:
        inbox.migrate()  # while there is a session left for it
        list(pool.map(process, range(4)))
    with psycopg.connect(pooled_url) as connection:
        found = connection.execute("SELECT id FROM charged ORDER BY id").fetchall()
    assert found == [(f"m-{number}",) for number in range(10)]


@without
def test_without_transactions_it_is_refused(pooled_url):
    with (
        closing(Inbox(pooled_url, consumer="billing")) as inbox,
        pytest.raises(ConfigurationError) as caught,
    ):
        inbox.migrate()
    place = pooled_url.partition("@")[2]
    assert str(caught.value) == (
        f"PgBouncer at {place} is in statement mode, and an inbox needs transactions; set "
        f"pool_mode to transaction or session"
    )
