"""These tests need a RabbitMQ of the system: `make test-rabbitmq` brings it and runs them.

Elsewhere they are not collected at all, so that nothing is skipped.
"""

import os

import pytest

from tests.rabbitmq.server import RabbitServer
from tests.servers.postgres_fixtures import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

collect_ignore_glob = [] if os.environ.get("ONCEKEY_TEST_RABBITMQ") else ["test_*.py"]


@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory):
    server = RabbitServer(tmp_path_factory.mktemp("rabbitmq")).start()
    yield server
    server.stop()
