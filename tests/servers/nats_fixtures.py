"""Fixtures that start NATS. A test module imports the ones that it asks for."""

from itertools import count

import pytest

from tests.servers.nats import NatsServer

_SERVER = pytest.StashKey[NatsServer]()
_NAMES = count(1)


@pytest.fixture(scope="session")
def nats_server(pytestconfig, tmp_path_factory):
    """One server for the whole run, whichever modules ask for it."""
    if _SERVER not in pytestconfig.stash:
        server = NatsServer(tmp_path_factory.mktemp("nats")).start()
        pytestconfig.stash[_SERVER] = server
        pytestconfig.add_cleanup(server.stop)
    return pytestconfig.stash[_SERVER]


@pytest.fixture
def stream_name(nats_server):
    """A name for a stream that no other test uses; its subjects begin with the same word."""
    return f"orders{next(_NAMES)}"
