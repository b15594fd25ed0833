"""A MariaDB that all tests of this folder share, and stores in both colours."""

import asyncio
from contextlib import ExitStack

import pytest

from oncekey.messages import Inbox
from oncekey.outbox import Outbox
from oncekey.stores import AsyncMySQLStore, MySQLStore
from oncekey.testing.conformance.base import OnRunner
from tests.messages.ways import ORDERS
from tests.servers.shared import started_once
from tests.system.mariadb.moved_time import TABLES
from tests.system.mariadb.server import MariaDBServer, serving


@pytest.fixture(scope="session")
def mariadb(end_of_run):
    """A server that all tests share; none may stop it."""
    return started_once(MariaDBServer, lambda: end_of_run.enter_context(serving()))


@pytest.fixture(scope="module")
def breakable():
    """A server of this module, to be stopped and started again."""
    with serving() as server:
        yield server


@pytest.fixture
def new_url(mariadb):
    """A database of its own: nothing is in it."""
    name = mariadb.new_database()
    yield mariadb.url(name)
    mariadb.say(f"DROP DATABASE {name}")


@pytest.fixture(scope="module")
def _schema(mariadb):
    name = mariadb.new_database()
    store = MySQLStore(mariadb.url(name))
    store.get(None, "the schema")
    store.close()
    return name


@pytest.fixture
def url(mariadb, _schema):
    """One database for many tests, with the schema and without records."""
    mariadb.say(*(f"DELETE FROM {table}" for table in TABLES), database=_schema)  # noqa: S608 - constants
    return mariadb.url(_schema)


@pytest.fixture(scope="module")
def _messages(mariadb):
    name = mariadb.new_database()
    for table in (Inbox(mariadb.url(name), "nobody"), Outbox(mariadb.url(name))):
        table.migrate()
        table.close()
    mariadb.say(ORDERS, database=name)
    return name


@pytest.fixture
def inbox_url(mariadb, _messages):
    """One database for many tests, with the tables of inbox, outbox and business, all empty."""
    for table in ("processed_messages", "outbox_messages", "orders"):
        mariadb.say(f"DELETE FROM {table}", database=_messages)  # noqa: S608 - constants
    return mariadb.url(_messages)


@pytest.fixture(params=["blocking", "coroutines"])
def colour(request):
    """Opens stores of one colour, each behind the same blocking verbs, and closes them."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())

        def opened(*arguments, **options):
            if request.param == "blocking":
                store = MySQLStore(*arguments, **options)
            else:
                store = OnRunner(AsyncMySQLStore(*arguments, **options), runner)
            stack.callback(store.close)
            return store

        yield opened
