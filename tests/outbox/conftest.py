"""Databases and ways to reach them, as the inbox has them, and outboxes that are closed."""

from contextlib import ExitStack

import pytest

from oncekey.outbox import Outbox
from tests.messages.conftest import (  # noqa: F401 - fixtures
    messages_url,
    postgres_url,
    sqlite_url,
    way,
    way_of,
)
from tests.servers.postgres_fixtures import postgres  # noqa: F401 - a fixture


@pytest.fixture
def open_outbox():
    """Opens outboxes and closes them."""
    with ExitStack() as stack:

        def opened(url, **options):
            outbox = Outbox(url, **options)
            stack.callback(outbox.close)
            return outbox

        yield opened


@pytest.fixture
def outbox(way, open_outbox):  # noqa: F811 - a fixture
    return open_outbox(way.url)
