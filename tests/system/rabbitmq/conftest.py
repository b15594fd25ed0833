import pytest

from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.system.rabbitmq.server import RabbitServer

__all__ = ["postgres", "postgres_url"]


@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory):
    server = RabbitServer(tmp_path_factory.mktemp("rabbitmq")).start()
    yield server
    server.stop()
