"""Fixtures that start NATS. A test module imports the ones that it asks for."""

from itertools import count

import pytest

from tests.servers.nats import NatsServer
from tests.servers.shared import started_once

_NAMES = count(1)


@pytest.fixture(scope="session")
def nats_server(end_of_run, tmp_path_factory):
    """One server for the whole run, whichever modules ask for it."""

    def start():
        server = NatsServer(tmp_path_factory.mktemp("nats")).start()
        end_of_run.callback(server.stop)
        return server

    return started_once(NatsServer, start)


@pytest.fixture
def stream_name(nats_server):
    """A name for a stream that no other test uses; its subjects begin with the same word."""
    return f"orders{next(_NAMES)}"
