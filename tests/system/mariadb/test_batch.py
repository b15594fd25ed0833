"""Claims and settles of a crowd share a statement on MariaDB, as they do on PostgreSQL."""

import re
from contextlib import contextmanager

import pytest

from oncekey import ConfigurationError
from oncekey.stores import AsyncMySQLStore, MySQLStore
from oncekey.stores.mysql import drivers, schema
from tests.patience import PATIENCE
from tests.stores.postgres.test_batch import (
    alone,
    ask,
    link,
    test_a_claim_that_was_given_back_is_spent,
    test_a_connection_that_breaks_leaves_its_crowd_in_doubt,
    test_a_crowd_that_is_cut_off_is_in_doubt,
    test_a_crowd_whose_answer_is_lost_is_in_doubt_as_a_whole,
    test_a_large_crowd_comes_in_parts,
    test_a_large_result_does_not_travel_with_others,
    test_a_row_that_somebody_holds_keeps_nobody_else_waiting,
    test_a_short_lease_is_not_handed_out_half_over,
    test_after_a_crowd_those_of_one_turn_of_the_loop_share_a_statement,
    test_after_a_crowd_whoever_comes_alone_asks_alone,
    test_an_insert_that_somebody_has_not_committed_sends_all_to_ask_alone,
    test_every_answer_occurs_in_these,
    test_in_a_crowd_everybody_is_told_what_each_is_told_alone,
    test_owners_who_are_none_are_told_so,
    test_the_same_key_is_never_twice_in_one_statement,
    test_the_slow_way_is_a_statement_for_each,
    test_those_who_come_while_one_asks_share_a_statement,
    test_what_is_wrong_with_the_configuration_is_told_to_all,
    test_who_waits_for_a_row_delays_nobody_who_comes_later,
    test_whoever_goes_away_leaves_the_others_their_answers,
    together,
)
from tests.system.mariadb.ways import Way

__all__ = [
    "alone",
    "link",
    "test_a_claim_that_was_given_back_is_spent",
    "test_a_connection_that_breaks_leaves_its_crowd_in_doubt",
    "test_a_crowd_that_is_cut_off_is_in_doubt",
    "test_a_crowd_whose_answer_is_lost_is_in_doubt_as_a_whole",
    "test_a_large_crowd_comes_in_parts",
    "test_a_large_result_does_not_travel_with_others",
    "test_a_row_that_somebody_holds_keeps_nobody_else_waiting",
    "test_a_short_lease_is_not_handed_out_half_over",
    "test_after_a_crowd_those_of_one_turn_of_the_loop_share_a_statement",
    "test_after_a_crowd_whoever_comes_alone_asks_alone",
    "test_an_insert_that_somebody_has_not_committed_sends_all_to_ask_alone",
    "test_every_answer_occurs_in_these",
    "test_in_a_crowd_everybody_is_told_what_each_is_told_alone",
    "test_owners_who_are_none_are_told_so",
    "test_the_same_key_is_never_twice_in_one_statement",
    "test_the_slow_way_is_a_statement_for_each",
    "test_those_who_come_while_one_asks_share_a_statement",
    "test_what_is_wrong_with_the_configuration_is_told_to_all",
    "test_who_waits_for_a_row_delays_nobody_who_comes_later",
    "test_whoever_goes_away_leaves_the_others_their_answers",
    "together",
]

pytestmark = pytest.mark.fast_path("what a crowd does")

BATCH = re.compile(r"CALL oncekey_(?:claims|settles)_v1\('.*',(\d+)")
KEY = re.compile(r"CALL oncekey_\w+_v1\(x'',x'([0-9a-f]*)'")


class Statements:
    """What the server is asked, and what somebody else does there meanwhile."""

    def __init__(self, server, database):
        self._server, self._database = server, database

    @staticmethod
    def size(statement, *_):
        """How many share it; 0 for a statement of one."""
        found = BATCH.match(statement)
        return int(found[1]) if found else 0

    @staticmethod
    def shared(count):
        """One of three lanes is taken by the one who asks."""
        return [count - count // 2, count // 2]

    @staticmethod
    def key(statement, *_):
        return bytes.fromhex(KEY.match(statement)[1]).decode()

    @contextmanager
    def _beside(self, statement, values=(), end="ROLLBACK"):
        with self._server.connected(self._database) as other, other.cursor() as cursor:
            # Otherwise the gaps between the rows are locked as well.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute("BEGIN")
            yield cursor.execute(statement, values)
            cursor.execute(end)

    @contextmanager
    def lock(self, *keys):
        """The rows are locked."""
        found = "SELECT 1 FROM oncekey_records WHERE scope = '' AND `key` IN %s FOR UPDATE"
        with self._beside(found, (keys,)) as count:
            assert count == len(keys)
            yield

    @contextmanager
    def lock_all(self):
        with self._beside("LOCK TABLES oncekey_records WRITE", end="UNLOCK TABLES"):
            yield

    @contextmanager
    def insert(self, key):
        """There is a row that is never committed."""
        copied = (
            "INSERT INTO oncekey_records SELECT scope, %s, status, fingerprint, token, nonce, "
            "attempt, lease_end, result, error, noted, revision, uncertain, label, reference, "
            "created, started, updated, finished, expires, version, hand, due, again "
            "FROM oncekey_records WHERE `key` = 'first'"
        )
        with self._beside(copied, (key,)) as count:
            assert count == 1
            yield

    def held_up(self):
        """The sessions that wait for a table; for a row it is only known that there are some."""
        tables = (
            "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
        )
        found = [session for (session,) in self._server.say(tables)]
        return found or self._server.say(Way.WAITING)[0][0]

    def end(self, session):
        self._server.say(f"KILL {session}")


@pytest.fixture
def statements(mariadb, url):
    return Statements(mariadb, url.rpartition("/")[2])


@pytest.fixture
async def store(url, monkeypatch):
    """It waits for a row as long as it takes, but for those who share a statement."""
    session = [
        one.replace("lock_wait_timeout = 4", "lock_wait_timeout = 3600") for one in schema.SESSION
    ]
    assert session != [*schema.SESSION]
    monkeypatch.setattr(drivers, "SESSION", session)
    store = AsyncMySQLStore(url, timeout=PATIENCE)
    await store.claim(ask("first"))  # the schema is there, and a connection
    yield store
    await store.aclose()


@pytest.fixture
def blocking(url):
    """A store of the same records in which nobody shares a statement."""
    store = MySQLStore(url, fast=False)
    yield store
    store.close()


@pytest.mark.parametrize("store", [MySQLStore, AsyncMySQLStore])
@pytest.mark.parametrize("fast", [None, 1, "no"])
def test_fast_is_true_or_false(store, fast):
    with pytest.raises(ConfigurationError, match=f"fast must be True or False, not {fast!r}"):
        store("mysql://localhost:1/none", fast=fast)
