"""Databases, the ways to reach them, and inboxes that are closed in the end."""

from contextlib import ExitStack

import psycopg
import pytest

from oncekey.messages import Inbox
from tests.messages.ways import WAYS
from tests.servers.postgres_fixtures import postgres  # noqa: F401 - a fixture

EMPTIED = """
    SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    DROP SCHEMA public CASCADE; CREATE SCHEMA public
"""


@pytest.fixture(scope="session")
def messages_url(postgres):  # noqa: F811 - a fixture
    return postgres.new_database()


@pytest.fixture
def postgres_url(messages_url):
    """A database with nothing in it."""
    with psycopg.connect(messages_url, autocommit=True) as connection:
        connection.execute(EMPTIED)
    return messages_url


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def way_of(request):
    """Opens a way by its name."""
    with ExitStack() as stack:

        def opened(name):
            kind, database = WAYS[name]
            way = kind(request.getfixturevalue(f"{database}_url"))
            stack.callback(way.close)
            return way

        yield opened


@pytest.fixture(params=WAYS)
def way(request, way_of):
    """Each way in turn."""
    return way_of(request.param)


@pytest.fixture
def open_inbox():
    """Opens inboxes and closes them."""
    with ExitStack() as stack:

        def opened(url, consumer="billing", **options):
            inbox = Inbox(url, consumer, **options)
            stack.callback(inbox.close)
            return inbox

        yield opened


@pytest.fixture
def inbox(way, open_inbox):
    return open_inbox(way.url)
