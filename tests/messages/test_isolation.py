"""The inbox's own statements that lose against others are tried again."""

import threading
from contextlib import closing

import pytest

from oncekey import StoreError
from oncekey.core.requests import Granted
from oncekey.messages.connections.postgres import PostgresConnections
from oncekey.messages.table import Table
from oncekey.stores.postgres.errors import PAUSES
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import until
from tests.servers.postgres_fixtures import beside, postgres, postgres_url

__all__ = ["beside", "postgres", "postgres_url"]

HOUR = 3_600_000_000
LOCK = 7886477261459485030
ADVISED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
FAILING = """
    CREATE SEQUENCE tries;
    CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('tries') <= {times} THEN
            RAISE {conflict} USING MESSAGE = 'it lost against another one';
        END IF;
        RETURN NEW;
    END
    $$;
    CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON processed_messages
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails();
"""


def desk_of(table):
    return Desk(table, lease=HOUR, ttl=HOUR, key="order-1")


@pytest.mark.parametrize("conflict", ["serialization_failure", "deadlock_detected"])
def test_a_claim_that_lost_is_tried_again(postgres_url, beside, conflict):
    with closing(Table(PostgresConnections(postgres_url), HOUR)) as table:
        assert desk_of(table).get() is None
        beside(postgres_url).execute(FAILING.format(times=len(PAUSES), conflict=conflict))
        assert desk_of(table).settle(desk_of(table).grant("a")) is DONE


def test_a_claim_that_loses_all_the_time_did_not_happen(postgres_url, beside):
    with closing(Table(PostgresConnections(postgres_url), HOUR)) as table:
        assert desk_of(table).get() is None
        failing = FAILING.format(times=len(PAUSES) + 1, conflict="serialization_failure")
        beside(postgres_url).execute(failing)
        with pytest.raises(StoreError, match="it lost against another one") as caught:
            desk_of(table).claim("a")
        assert caught.value.happened is False
        desk_of(table).grant("a")


def test_those_who_meet_while_migrating_find_what_the_first_one_has_done(postgres_url, beside):
    name, other = postgres_url.rpartition("/")[2], beside(postgres_url)
    setting = "default_transaction_isolation"
    other.execute(f"ALTER DATABASE {name} SET {setting} = 'repeatable read'")
    try:
        other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        tables = [Table(PostgresConnections(postgres_url), HOUR) for _ in range(3)]
        answers = []
        threads = [
            threading.Thread(target=lambda table=table: answers.append(desk_of(table).claim("a")))
            for table in tables
        ]
        for thread in threads:
            thread.start()
        until(lambda: other.execute(ADVISED).fetchone() == (3,))
        other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        for thread in threads:
            thread.join()
        assert [type(answer) for answer in answers] == [Granted] * 3  # all have the same nonce
        for table in tables:
            table.close()
    finally:
        other.execute(f"ALTER DATABASE {name} RESET {setting}")
