"""The inbox's own connections and its table as a store: trouble, forks, and what is refused."""

import os
import sqlite3
import threading
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import psycopg
import pytest

from oncekey import ConfigurationError, Once, StoreError
from oncekey.compat import runner
from oncekey.core.requests import Busy, Claim, Forget, Granted, Note, Renew, Resolve, Scan, Verdict
from oncekey.messages import Inbox, Message, statements
from oncekey.messages.connections import sqlite
from oncekey.messages.connections.postgres import PostgresConnections, _Impatient
from oncekey.messages.connections.sqlite import SQLiteConnections
from oncekey.messages.table import Table
from oncekey.testing import FakeClock, disabled
from tests.patience import PATIENCE, until
from tests.servers.postgres_proxy_fixtures import pooled_url

__all__ = ["pooled_url"]

ORDER = Message(id="m-1", type="order.placed")
HOUR = 3_600_000_000


@pytest.fixture(params=["postgres", "sqlite"])
def table(request, tmp_path):
    if request.param == "postgres":
        own = PostgresConnections(request.getfixturevalue("postgres_url"))
    else:
        own = SQLiteConnections(tmp_path / "shop.db")
    table = Table(own, 0)
    yield table
    table.close()


def claim(nonce="a", **facts):
    usual = {"fingerprint": None, "lease": HOUR, "ttl": HOUR, "label": "t", "reference": "m-1"}
    return Claim("billing", "m-1", nonce=nonce, **(usual | facts))


def test_a_lost_reply_is_asked_for_again(table):
    first = table.claim(claim())
    again = table.claim(claim())
    assert type(first) is type(again) is Granted
    assert first.record.token == again.record.token
    assert type(table.claim(claim("b"))) is Busy


def test_a_claim_of_another_meaning_is_refused_unless_the_first_has_failed(table):
    owner = table.claim(claim(fingerprint="1:aa")).record
    assert type(table.claim(claim("b", fingerprint="1:bb"))).__name__ == "Mismatch"
    assert type(table.claim(claim("b", fingerprint="2:bb"))) is Busy
    lapsed = Renew("billing", "m-1", token=owner.token, nonce="a", lease=1, ttl=1)
    assert table.renew(lapsed) is Verdict.DONE
    assert type(table.claim(claim("b", fingerprint="1:bb"))).__name__ == "Mismatch"
    taken = table.claim(claim("c"))
    assert (taken.record.fingerprint, taken.record.attempt, taken.record.uncertain) == (
        "1:aa",
        2,
        True,
    )


def test_only_the_owner_renews_and_what_is_gone_is_lost(table):
    owner = table.claim(claim()).record
    ask = Renew("billing", "m-1", token=owner.token, nonce="a", lease=HOUR, ttl=HOUR)
    assert table.renew(ask) is Verdict.DONE
    ask.nonce = "b"
    assert table.renew(ask) is Verdict.LOST
    gone = Forget("billing", "m-1", token=owner.token, force=False)
    assert table.forget(gone) is Verdict.LOST
    gone.force = True
    assert table.forget(gone) is Verdict.DONE
    assert table.forget(gone) is Verdict.DONE
    assert table.get("billing", "m-1") is None
    ask.nonce = "a"
    assert table.renew(ask) is Verdict.LOST


def test_verbs_that_messages_have_no_use_for(table):
    asks = [
        (table.note, Note("b", "k", token=1, nonce="a", noted=b"", revision=1)),
        (
            table.resolve,
            Resolve("b", "k", token=1, status="released", result=None, error=None, ttl=1),
        ),
        (table.scan, Scan()),
    ]
    for verb, ask in asks:
        with pytest.raises(ConfigurationError, match="processed_messages has no"):
            verb(ask)


def test_a_locked_row_is_not_renewed_and_not_waited_for(postgres_url):
    table = Table(PostgresConnections(postgres_url), 0)
    owner = table.claim(claim()).record
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT 1 FROM processed_messages FOR UPDATE")
        with pytest.raises(StoreError, match="locked by a transaction") as refused:
            table.renew(Renew("billing", "m-1", token=owner.token, nonce="a", lease=1, ttl=1))
        assert refused.value.happened is False
    table.close()


def test_a_claim_behind_an_uncommitted_one_is_busy(postgres_url):
    table = Table(PostgresConnections(postgres_url), 0)
    inbox = Inbox(postgres_url, "billing")
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT 1")
        with inbox.atomic(other, ORDER):
            assert type(table.claim(claim())) is Busy
    table.close()
    inbox.close()


def test_a_server_that_is_not_there():
    inbox = Inbox("postgresql://127.0.0.1:1/nowhere", "billing", observers=())
    with pytest.raises(StoreError) as refused, inbox.leased(ORDER):
        pass
    assert refused.value.unreachable


def test_a_server_that_says_nothing(postgres_url, monkeypatch):
    own = PostgresConnections(postgres_url)
    with monkeypatch.context() as hasty, pytest.raises(StoreError, match="said nothing") as refused:
        hasty.setattr(_Impatient, "patience", 0.2)
        own.run("SELECT pg_sleep(3600)", {})
    assert refused.value.happened is None
    assert own.run("SELECT 1", {}) == [(1,)]
    own.close()


def test_connections_that_the_server_has_ended_are_replaced(postgres_url):
    own = PostgresConnections(postgres_url)
    assert own.identity()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert own.run("SELECT 1", {}) == [(1,)]
    own.close()


def test_a_file_in_a_folder_that_is_not_there(tmp_path):
    inbox = Inbox(f"sqlite:///{tmp_path / 'none' / 'shop.db'}", "billing")
    with pytest.raises(ConfigurationError, match="needs its folder"):
        inbox.migrate()
    with pytest.raises(ConfigurationError, match="needs its folder"):
        inbox.is_processed("m-1")


@pytest.mark.parametrize(("query", "mode"), [("", 0o600), ("?mode=0640", 0o640)])
def test_a_new_file_is_for_its_owner_alone(tmp_path, query, mode):
    before = os.umask(0)
    try:
        inbox = Inbox(f"sqlite:///{tmp_path / 'shop.db'}{query}", "billing")
        inbox.mark_completed(inbox.mark_processing("m-1"))
    finally:
        os.umask(before)
    assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {mode}
    inbox.close()


def test_a_keeper_does_not_wait_for_a_writer(tmp_path):
    own = SQLiteConnections(tmp_path / "shop.db")
    own.identity()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="stayed locked"):
            own.run("DELETE FROM processed_messages", {}, keeper=True)
    own.close()


@pytest.mark.parametrize("verb", ["claim", "renew"])
def test_time_is_read_when_the_file_can_be_written(tmp_path, monkeypatch, verb):
    """A lease that is counted from before the wait may be over when it is granted."""
    clock = FakeClock()
    monkeypatch.setattr(statements, "time", SimpleNamespace(time_ns=lambda: clock() * 1000))
    monkeypatch.setattr(sqlite, "_PATIENCE", 3600.0)
    monkeypatch.setattr(sqlite, "_OF_KEEPER", 3600.0)
    monkeypatch.setattr(sqlite, "_AT_ONCE", 0.0)  # else it may be so much too early
    table = Table(SQLiteConnections(tmp_path / "shop.db"), 0)
    owner = table.claim(claim("first", lease=HOUR)).record
    verbs = {
        "claim": lambda: table.claim(claim("second", lease=HOUR)),
        "renew": lambda: table.renew(
            Renew("billing", "m-1", token=owner.token, nonce="first", lease=HOUR, ttl=HOUR)
        ),
    }
    if verb == "claim":
        clock.advance("2h")
    begun = []
    table.own.run("SELECT 1", {}, keeper=True)
    for line in table.own._lines.values():
        line._connection.set_trace_callback(begun.append)
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=verbs[verb], daemon=True)
        waiting.start()
        until(lambda: begun)
        clock.advance("2h")
        before = len(begun)
        until(lambda: len(begun) > before + 1)  # one of them may have had the time from before
        other.execute("COMMIT")
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert table.get("billing", "m-1").lease_end == clock() + HOUR
    table.close()


def test_a_fork_waits_for_whoever_uses_the_file_and_others_for_the_fork(tmp_path):
    own = SQLiteConnections(tmp_path / "shop.db")
    own.identity()
    own.run("SELECT 1", {}, keeper=True)
    forker = runner()
    with own._lines[True]._lock:
        own.before_fork(forker, 0.01)  # not for ever
    assert [line._connection is None for line in own._lines.values()] == [True, False]
    own.after_fork_in_parent(forker)
    own.before_fork(forker, PATIENCE)
    assert {line._connection for line in own._lines.values()} == {None}
    heard = []
    for keeper in (False, True):
        ask = partial(own.run, "SELECT 1", {}, keeper=keeper)
        threading.Thread(target=lambda ask=ask: heard.append(ask()), daemon=True).start()
    assert not heard
    own.after_fork_in_parent(forker)
    until(lambda: heard == [[(1,)], [(1,)]])
    own.close()


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_a_forked_child_opens_its_own(way_of, name):
    way = way_of(name)
    inbox = Inbox(way.url, "billing")
    inbox.mark_completed(inbox.mark_processing("m-1"))
    child = os.fork()
    if child == 0:
        good = inbox.is_processed("m-1") and inbox.mark_processing("m-2") is not None
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert inbox.mark_processing("m-2") is None
    inbox.close()


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_protection_can_be_switched_off(way_of, open_inbox, name):
    way = way_of(name)
    inbox = open_inbox(way.url)
    inbox.migrate()
    for _ in range(2):
        with disabled(), way.transaction() as connection:
            with inbox.atomic(connection, ORDER) as delivery:
                assert not delivery.duplicate
                delivery.complete(1)
            with inbox.leased(ORDER) as delivery:
                delivery.complete(2, connection=connection)
    assert way.marks() == []


def test_the_database_of_a_once_in_postgres(postgres_url):
    once = Once(postgres_url)
    inbox = Inbox(once, "billing")
    with inbox.leased(ORDER) as delivery:
        assert delivery.token > 0
        assert len(delivery.downstream_key("charge")) == 40
    assert inbox.is_processed("m-1")
    inbox.close()
    once.close()


PREPARED = "SELECT count(*) FROM pg_prepared_statements"


def test_behind_a_pooler_nothing_is_prepared(pooled_url):
    """The next statement may run in another session, where it is not prepared."""
    own = PostgresConnections(pooled_url)
    with closing(Table(own, 0)) as table:
        for number in range(8):
            assert type(table.claim(claim(f"n{number}"))) in (Granted, Busy)
        assert own.run(PREPARED, {}) == [(0,)]


def test_a_server_that_goes_away_while_it_is_met_was_asked_nothing(pooled_url, monkeypatch):
    def cut_off(*_):
        raise psycopg.OperationalError("the server closed the connection")

    monkeypatch.setattr("oncekey.messages.connections.postgres._rows", cut_off)
    with closing(PostgresConnections(pooled_url)) as own, pytest.raises(StoreError) as caught:
        own.run(PREPARED, {})
    assert caught.value.happened is False
