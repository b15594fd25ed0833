"""Fixtures that start NATS. A test module imports the ones that it asks for."""

from itertools import count

import pytest

from tests.servers.nats import NatsServer

_NAMES = count(1)


@pytest.fixture(scope="session")
def nats_server(run_servers, tmp_path_factory):
    """One server for the whole run, whichever modules ask for it."""

    def start(ending):
        server = NatsServer(tmp_path_factory.mktemp("nats")).start()
        ending.callback(server.stop)
        return server

    return run_servers.get(NatsServer, start)


@pytest.fixture
def stream_name(nats_server):
    """A name for a stream that no other test uses; its subjects begin with the same word."""
    return f"orders{next(_NAMES)}"
