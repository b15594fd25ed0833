"""The inbox's own connections answer nothing that a synchronous standby may not have."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from oncekey import StoreError
from oncekey.core.requests import Granted
from oncekey.messages.connections.postgres import PostgresConnections, _Impatient
from oncekey.messages.table import Table
from oncekey.testing.conformance.base import DONE, LOST, Desk
from tests.patience import PATIENCE, until
from tests.servers.postgres_fixtures import beside, breakable_postgres, postgres, postgres_url
from tests.servers.postgres_proxy_fixtures import proxied_url, proxy
from tests.servers.postgres_standby import standby

__all__ = [
    "beside",
    "breakable_postgres",
    "postgres",
    "postgres_url",
    "proxied_url",
    "proxy",
    "standby",
]

HOUR = 3_600_000_000


def opened(url):
    return closing(Table(PostgresConnections(url), HOUR))


def desk_of(table, key="order-1"):
    return Desk(table, lease=HOUR, ttl=HOUR, key=key)


@pytest.fixture
def patient(monkeypatch):
    """Its connections wait for an answer as long as it takes."""
    monkeypatch.setattr(_Impatient, "patience", PATIENCE)


@pytest.fixture
def desk(standby, patient):
    with opened(standby.url) as table:
        yield desk_of(table)


@pytest.fixture
def thread():
    """Runs a request that must wait."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def waits(standby, verb):
    """Whether it is answered only when the standby is back. Returns the answer."""
    until(lambda: standby.waiting() or verb.done())
    assert not verb.done()
    standby.come_back()
    return verb.result(PATIENCE)


def test_an_owner_who_asks_again_is_answered_when_the_standby_has_it(standby, desk, thread):
    owner = desk.grant("a")
    standby.leave()
    answer = waits(standby, thread(desk.claim, "a"))
    assert type(answer) is Granted
    assert answer.record.token == owner.token


def test_a_completion_that_is_told_again_is_confirmed_when_the_standby_has_it(
    standby, desk, thread
):
    owner = desk.grant("a")
    assert desk.settle(owner) is DONE
    before = desk.get()
    standby.leave()
    assert waits(standby, thread(desk.settle, owner)) is DONE
    assert desk.get() == before


def test_a_completion_whose_row_is_gone_meanwhile_is_lost(desk, monkeypatch):
    owner = desk.grant("a")
    assert desk.settle(owner) is DONE
    table = desk.store
    read = table.read

    def then_purged(scope, key):
        found = read(scope, key)
        table.own.run("DELETE FROM processed_messages", {})
        return found

    monkeypatch.setattr(table, "read", then_purged)
    assert desk.settle(owner) is LOST


def test_claims_and_completions_wait_for_the_standby_whatever_the_session_was_told(
    standby, desk, thread, beside
):
    name = standby.url.rpartition("/")[2]
    beside(standby.url).execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    desk.grant("a")
    for verb in ("claim", "settle", "renew", "release"):
        one = desk.at(f"order-{verb}")
        owner = None if verb == "claim" else one.grant("a")
        standby.leave()
        asked = thread(one.grant, "a") if owner is None else thread(getattr(one, verb), owner)
        waits(standby, asked)


def test_a_commit_that_only_this_server_confirms_is_unknown(standby, desk, thread):
    desk.at("warm").grant("a")
    standby.leave()
    claim = thread(desk.claim, "a")
    until(lambda: standby.waiting() or claim.done())
    standby.give_up_waiting()
    with pytest.raises(StoreError, match="committed without its synchronous standby") as caught:
        claim.result(PATIENCE)
    assert caught.value.happened is None
    assert type(waits(standby, thread(desk.claim, "a"))) is Granted


@pytest.mark.usefixtures("patient")
def test_who_is_interrupted_sends_no_cancel_request(postgres_url, proxied_url, proxy, beside):
    """The server may be committing: it would go on without its standby."""
    other, watch = beside(postgres_url), beside(postgres_url)
    locked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    def interrupt():
        until(lambda: watch.execute(locked).fetchall())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with opened(proxied_url) as table:
        desk_of(table).grant("a")
        thread = threading.Thread(target=interrupt)
        with other.transaction():
            other.execute("LOCK processed_messages")  # for which no limit of a row counts
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                desk_of(table).get()
        thread.join()
        assert proxy.cancels == 0
        assert desk_of(table).get().nonce == "a"
