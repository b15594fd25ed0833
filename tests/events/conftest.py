import pytest

from tests.events.ways import System, memory
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = ["another_redis", "empty_redis", "redis_server"]


@pytest.fixture(params=["memory", "memory-async", "redis", "redis-async"])
async def system(request):
    place, _, colour = request.param.partition("-")
    where = memory() if place == "memory" else request.getfixturevalue("empty_redis").url
    made = System(where, asynchronous=bool(colour), router=place == "redis")
    yield made
    await made.aclose()
