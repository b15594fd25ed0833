"""What is MariaDB's own about its store: statements, locks, connections, and what is refused."""

import asyncio
import signal
import threading
from typing import Any

import pytest

from oncekey import ConfigurationError, StoreError, UnreadableError
from oncekey.core.requests import Busy, Claim, Granted, Replay, Scan, Verdict
from oncekey.errors import StoreAccessError
from oncekey.stores import AsyncMySQLStore, MySQLStore
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE, until
from tests.system.mariadb.proxy import Proxy
from tests.system.mariadb.server import serving

SECOND = 1_000_000
SESSIONS = (
    "SELECT id FROM information_schema.processlist "
    "WHERE id <> CONNECTION_ID() AND db = DATABASE() AND"
)


def desk_of(store, key="order-1", lease=60 * SECOND):
    return Desk(store, lease=lease, ttl=60 * SECOND, key=key)


def lived(desk):
    """One key through every verb that its owner and its keeper have."""
    owner = desk.grant("a")
    assert desk.renew(owner) is DONE
    assert desk.note(owner, b"noted", 1) is DONE
    assert desk.release(owner, hold=True, uncertain=True) is DONE
    held = desk.read()
    assert desk.resolve(held, status="released") is DONE
    again = desk.grant("b")
    assert desk.settle(again) is DONE
    assert type(desk.claim("c")) is Replay
    assert desk.store.scan(Scan()).records == [desk.read()]
    assert desk.store.purge(0, 10) == 0
    assert desk.forget(again) is DONE


@pytest.fixture
def database(url):
    return url.rpartition("/")[2]


@pytest.fixture
def beside(mariadb, database):
    """A connection that does what another process might."""
    with mariadb.connected(database) as connection:
        yield connection


@pytest.fixture
def proxy(mariadb):
    proxy = Proxy(mariadb.port)
    yield proxy
    proxy.close()


def through(proxy, mariadb, url):
    return url.replace(f":{mariadb.port}/", f":{proxy.port}/")


def said(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


# Round trips, lost replies and silence


def test_every_verb_is_one_statement_and_one_round_trip(mariadb, url, proxy, colour):
    store = colour(through(proxy, mariadb, url), size=1)
    lived(desk_of(store, "warm"))
    before = proxy.asked
    lived(desk_of(store))
    # claim renew note release get resolve claim settle claim scan get purge forget
    assert proxy.asked - before == 13


def test_a_lost_reply_is_unknown_and_the_same_question_is_answered(mariadb, url, proxy, colour):
    store = colour(through(proxy, mariadb, url), size=1)
    lived(desk_of(store, "warm"))
    desk = desk_of(store)
    proxy.lose_the_next_reply()
    with pytest.raises(StoreError, match="lost before the answer") as caught:
        desk.claim("a")
    assert caught.value.happened is None
    owner = desk.grant("a")
    assert (owner.attempt, type(desk.claim("b"))) == (1, Busy)
    proxy.lose_the_next_reply()
    with pytest.raises(StoreError, match="lost before the answer") as caught:
        desk.settle(owner)
    assert caught.value.happened is None
    assert desk.settle(owner) is DONE


def test_a_silent_server_is_given_up(mariadb, url, proxy, colour):
    store = colour(through(proxy, mariadb, url), size=1, timeout="500ms")
    lived(desk_of(store, "warm"))
    proxy.silent.set()
    desk = desk_of(store)
    with pytest.raises(StoreError) as caught:
        desk.claim("a")
    assert (caught.value.happened, caught.value.unreachable) == (None, True)
    proxy.silent.clear()
    assert desk.grant("a").attempt == 1


def test_a_result_that_the_server_would_not_read_is_left_out(mariadb, url, colour, caplog):
    """Otherwise the settle would be tried for ever, and a later caller would run it again."""
    small = 1 << 20
    before = mariadb.say("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    mariadb.say(f"SET GLOBAL max_allowed_packet = {small}")
    try:
        desk = desk_of(colour(url))
        owner = desk.grant("a")
        for large in (small // 2, 20 * small):
            with pytest.raises(StoreError, match="raise max_allowed_packet") as caught:
                desk.note(owner, b"n" * large, 1)
            assert caught.value.happened is False
        assert desk.settle(owner, result=b"r" * (small // 2)) is DONE
        assert "a result is not kept: the MySQL server at" in caplog.text
        assert (desk.read().status, desk.read().result) == ("completed", None)
        assert type(desk.claim("b")) is Replay
        fits = desk_of(desk.store, "order-2")
        assert fits.settle(fits.grant("a"), result=b"r" * (small // 2 - 1024)) is DONE
        assert fits.read().result is not None
    finally:
        mariadb.say(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_statement_that_is_too_large_costs_no_connection(mariadb, url, colour):
    store = colour(url, size=1)
    desk = desk_of(store)
    owner = desk.grant("a")
    connected = "SHOW GLOBAL STATUS LIKE 'Connections'"
    before = int(mariadb.say(connected)[0][1])
    with pytest.raises(StoreError, match="nothing was changed"):
        desk.note(owner, b"n" * (20 << 20), 1)
    assert desk.note(owner, b"noted", 1) is DONE
    assert int(mariadb.say(connected)[0][1]) == before + 1  # this one


def test_what_is_asked_again_is_written_again(url, beside, colour):
    """A transaction that changes nothing would wait for no replica."""
    desk = desk_of(colour(url))
    stamped = "SELECT again FROM oncekey_records"
    owner = desk.grant("a")
    assert desk.grant("a") == owner
    assert said(beside, stamped) == ((1,),)
    desk.settle(owner)
    assert desk.settle(owner) is DONE
    assert said(beside, stamped) == ((2,),)
    assert type(desk.claim("b")) is Replay
    assert said(beside, stamped) == ((2,),)


# Locks


def waiting(connection):
    """Whether somebody waits for a lock."""
    asked = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    return said(connection, asked)[0][0]


def test_a_lease_starts_when_the_row_is_ours(url, beside, mariadb):
    """Somebody inserts the key, takes their time, and takes it back."""
    store = MySQLStore(url)
    desk_of(store, "warm").grant("a")
    said(beside, "BEGIN")
    columns = (
        "status, fingerprint, token, nonce, attempt, lease_end, result, error, noted, revision, "
        "uncertain, label, reference, created, started, updated, finished, expires, version, hand, "
        "due"
    )
    said(
        beside,
        f"INSERT INTO oncekey_records (scope, `key`, {columns}) "  # noqa: S608 - constants
        f"SELECT scope, 'order-1', {columns} FROM oncekey_records",
    )
    answers = []
    lease = 1000
    thread = threading.Thread(target=lambda: answers.append(desk_of(store).claim("b", lease=lease)))
    thread.start()
    with mariadb.connected() as watch:
        until(lambda: waiting(watch))
        now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
        said(watch, "SET time_zone = '+00:00'")
        seen = said(watch, now)[0][0]
        until(lambda: said(watch, now)[0][0] > seen + lease)
    said(beside, "ROLLBACK")
    thread.join()
    (answer,) = answers
    assert type(answer) is Granted
    assert answer.now >= seen + lease
    assert (answer.record.token, answer.record.lease_end) == (answer.now, answer.now + lease)
    assert desk_of(store).read() == answer.record
    store.close()


def test_a_settle_judges_the_record_when_the_row_is_its_own(url, beside, mariadb):
    """Somebody holds the row, and lets the record expire meanwhile."""
    store = MySQLStore(url)
    owner = desk_of(store).grant("a")
    now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
    said(beside, "SET time_zone = '+00:00'")
    said(beside, "BEGIN")
    said(beside, f"UPDATE oncekey_records SET expires = ({now}) + {SECOND // 5}")  # noqa: S608 - constants
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(desk_of(store).settle(owner)))
    thread.start()
    with mariadb.connected() as watch:
        until(lambda: waiting(watch))
    until(lambda: said(beside, f"SELECT ({now}) > expires FROM oncekey_records") == ((1,),))  # noqa: S608 - constants
    said(beside, "COMMIT")
    thread.join()
    assert verdicts == [Verdict.LOST]
    assert store.get(None, "order-1") is None
    store.close()


def test_purge_passes_over_what_somebody_holds(url, beside, colour):
    store = colour(url)
    for key in ("a", "b", "c"):
        desk = desk_of(store, key)
        desk.settle(desk.grant("n"), ttl=1)
    said(beside, "BEGIN")
    said(beside, "SELECT 1 FROM oncekey_records WHERE scope = '' AND `key` = 'b' FOR UPDATE")
    assert store.purge(0, 10) == 2
    said(beside, "ROLLBACK")
    assert store.purge(0, 10) == 1


def test_a_row_that_stays_locked_is_given_up_and_nothing_happened(url, beside, monkeypatch):
    store = MySQLStore(url, timeout=PATIENCE)
    owner = desk_of(store).grant("a")
    monkeypatch.setattr("oncekey.stores.mysql.pool.PAUSES", ())
    said(beside, "BEGIN")
    said(beside, "SELECT 1 FROM oncekey_records FOR UPDATE")
    with pytest.raises(StoreError, match="gave the statement up") as caught:
        desk_of(store).settle(owner)
    assert caught.value.happened is False
    said(beside, "ROLLBACK")
    assert desk_of(store).read() == owner
    assert desk_of(store).settle(owner) is DONE
    store.close()


@pytest.mark.parametrize("number", [1205, 1213])
def test_a_statement_that_lost_to_another_one_is_tried_again(url, beside, colour, number):
    """A trigger stands for the other one: it refuses the write twice."""
    desk = desk_of(colour(url, size=1))
    owner = desk.grant("a")
    trigger = (
        "CREATE TRIGGER losing AFTER UPDATE ON oncekey_records FOR EACH ROW BEGIN "
        "SET @times = COALESCE(@times, 0) + 1; IF @times < 3 THEN SIGNAL SQLSTATE '40001' "
        "SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'lost'; END IF; END"
    )
    said(beside, trigger.format(number))
    try:
        assert desk.note(owner, b"noted", 1) is DONE
        assert said(beside, "SELECT again FROM oncekey_records") == ((1,),)  # the others: undone
        assert desk.settle(owner) is DONE
    finally:
        said(beside, "DROP TRIGGER losing")
    assert desk.read().noted == b"noted"


def test_a_record_of_a_newer_release_is_refused_by_every_verb(url, beside, colour):
    desk = desk_of(colour(url))
    owner = desk.grant("a")
    said(beside, "UPDATE oncekey_records SET version = 2")
    verbs = [
        lambda: desk.claim("a"),
        lambda: desk.renew(owner),
        lambda: desk.note(owner, b"", 1),
        lambda: desk.settle(owner),
        lambda: desk.release(owner),
        lambda: desk.resolve(owner),
        lambda: desk.forget(owner, force=True),
        desk.get,
    ]
    for verb in verbs:
        with pytest.raises(UnreadableError, match="upgrade oncekey here as well"):
            verb()


def test_texts_may_be_long(url, colour):
    desk = desk_of(colour(url))
    owner = desk.grant("a", label="l" * 5000, reference="r" * 5000)
    assert desk.read() == owner


# Connections


def test_each_loop_has_its_own_connections(url):
    store = AsyncMySQLStore(url)

    async def claim(key):
        ask = Claim(None, key, nonce="n", fingerprint=None, lease=SECOND, ttl=SECOND)
        answers = await asyncio.gather(*(store.claim(ask) for _ in range(20)))
        await store.aclose()
        return {type(answer) for answer in answers}

    assert asyncio.run(claim("a")) == asyncio.run(claim("b")) == {Granted}


def test_a_cancelled_claim_leaves_no_half_read_connection(url):
    store = AsyncMySQLStore(url, size=1)

    async def go():
        desk = Claim(None, "order-1", nonce="n", fingerprint=None, lease=SECOND, ttl=SECOND)
        await store.get(None, "warm")
        for _ in range(20):
            task = asyncio.create_task(store.claim(desk))
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        answer = await store.claim(desk)
        await store.aclose()
        return answer

    assert type(asyncio.run(go())) is Granted


def test_a_killed_server_loses_no_answer_and_is_found_again(breakable, colour):
    url = breakable.url(breakable.new_database())
    store = colour(url)
    desk = desk_of(store)
    owner = desk.grant("a")
    breakable.stop(signal.SIGKILL)
    with pytest.raises(StoreError) as caught:
        desk.settle(owner)
    assert (caught.value.happened, caught.value.unreachable) == (False, True)
    breakable.start()
    assert desk.settle(owner) is DONE
    assert type(desk.claim("b")) is Replay


def test_a_connection_whose_procedure_was_killed_is_not_used_again(url, beside, colour):
    """It may still be inside of the transaction, and with the settings of a batch."""
    store = colour(url, size=1)
    desk = desk_of(store)
    owner = desk.grant("a")
    other = desk_of(store, "order-2").grant("a")
    caught = []

    def settle():
        with pytest.raises(StoreError) as error:
            desk.settle(owner)
        caught.append(error.value)

    said(beside, "BEGIN")
    said(beside, "SELECT 1 FROM oncekey_records WHERE `key` = 'order-1' FOR UPDATE")
    waiting = threading.Thread(target=settle)
    waiting.start()
    (session,) = until(
        lambda: said(beside, f"{SESSIONS} command = 'Query' AND info LIKE 'UPDATE %'")
    )
    said(beside, f"KILL QUERY {session[0]}")
    waiting.join()
    assert caught[0].happened is None
    said(beside, "ROLLBACK")
    until(lambda: not said(beside, f"{SESSIONS} id = {session[0]}"))
    assert desk.settle(owner) is DONE
    assert desk_of(store, "order-2").settle(other) is DONE


# What is refused before anything is claimed


def refused(store, words, kind: type[Any] = ConfigurationError) -> Any:
    with pytest.raises(kind) as caught:
        store.claim(Claim(None, "k", nonce="n", fingerprint=None, lease=SECOND, ttl=SECOND))
    assert words in str(caught.value)
    return caught.value


def test_a_table_in_myisam_is_refused(url, beside, colour):
    said(beside, "ALTER TABLE oncekey_audit ENGINE = MyISAM")
    refused(colour(url), "ALTER TABLE oncekey_audit ENGINE = InnoDB")
    said(beside, "ALTER TABLE oncekey_audit ENGINE = InnoDB")


def test_a_server_that_becomes_read_only_grants_nothing_even_to_root(breakable, colour):
    name = breakable.new_database()
    store = colour(breakable.url(name))
    owner = desk_of(store).grant("a")
    breakable.say("SET GLOBAL read_only = 1")
    assert refused(store, "is read-only", StoreError).happened is False
    with pytest.raises(StoreError, match="is read-only"):
        desk_of(store).settle(owner)
    refused(colour(breakable.url(name)), "is read-only")
    breakable.say("SET GLOBAL read_only = 0")
    assert desk_of(store).settle(owner) is DONE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sysdate-is-now"], "runs with sysdate-is-now"),
        (["--log-bin=log", "--binlog-format=STATEMENT"], "binlog_format=STATEMENT"),
    ],
)
def test_a_server_that_would_break_a_promise_is_refused(options, words):
    with serving(*options) as server:
        refused(MySQLStore(server.url(server.new_database())), words)


def test_settings_of_the_server_change_nothing():
    odd = (
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
        "--transaction-isolation=SERIALIZABLE",
        "--default-time-zone=-07:00",
        "--character-set-server=latin1",
        "--autocommit=0",
        "--log-bin=log",
        "--default-storage-engine=MyISAM",
    )
    with serving(*odd) as server:
        store = MySQLStore(server.url(server.new_database()))
        lived(desk_of(store, 'it\'s \\ "quoted"'))
        store.close()


def test_wrong_names_and_rights_are_explained(mariadb, new_url):
    name = new_url.rpartition("/")[2]
    mariadb.say(f"CREATE OR REPLACE USER app_{name}@'%' IDENTIFIED BY 'gehe/im:é'")
    user = f"app_{name}:gehe%2Fim%3A%C3%A9"
    refused(MySQLStore(mariadb.url("nowhere")), "create the database", StoreAccessError)
    refused(MySQLStore(mariadb.url(name, f"app_{name}:wrong")), "Access denied", StoreAccessError)
    mariadb.say(f"GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON {name}.* TO app_{name}@'%'")
    refused(MySQLStore(mariadb.url(name, user)), "run `oncekey migrate`", StoreAccessError)
    owner = MySQLStore(new_url)
    owner.get(None, "the schema")
    owner.close()
    store = MySQLStore(mariadb.url(name, user))
    lived(desk_of(store))
    store.close()


# Migrations


def test_many_processes_may_migrate_at_once(new_url):
    stores = [MySQLStore(new_url) for _ in range(6)]
    with_barrier = threading.Barrier(len(stores))
    answers = []

    def claim(store, number):
        with_barrier.wait()
        answers.append(type(desk_of(store, f"key-{number}").claim("n")))

    threads = [
        threading.Thread(target=claim, args=(store, number)) for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [Granted] * 6
    for store in stores:
        store.close()


def test_a_migration_that_was_cut_off_is_done_again(mariadb, new_url):
    store = MySQLStore(new_url)
    owner = desk_of(store).grant("a")
    store.close()
    name = new_url.rpartition("/")[2]
    mariadb.say(
        "DELETE FROM oncekey_schema", "DROP PROCEDURE oncekey_settle_v1", database=name
    )  # as it was before the last steps
    again = MySQLStore(new_url)
    assert desk_of(again).settle(owner) is DONE
    again.close()


def test_a_database_that_was_made_again_is_migrated_again(mariadb, new_url, colour):
    store = colour(new_url)
    desk_of(store).grant("a")
    name = new_url.rpartition("/")[2]
    mariadb.say(f"DROP DATABASE {name}", f"CREATE DATABASE {name}")
    with pytest.raises(StoreError):
        desk_of(store).claim("b")
    assert desk_of(store).grant("b").attempt == 1


def test_a_newer_schema_that_needs_a_newer_release_is_refused(mariadb, new_url, colour):
    store = colour(new_url)
    store.get(None, "the schema")
    store.close()
    name = new_url.rpartition("/")[2]
    mariadb.say("UPDATE oncekey_schema SET version = 9, oldest = 9", database=name)
    refused(colour(new_url), "upgrade oncekey here as well")
