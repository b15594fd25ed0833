from tests.faults.servers import server
from tests.fixtures import until
from tests.processes.child_processes import spawn_of
from tests.servers.postgres_fixtures import (
    _shared_database,
    breakable_postgres,
    empty_postgres_url,
    postgres,
)
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = [
    "_shared_database",
    "another_redis",
    "breakable_postgres",
    "empty_postgres_url",
    "empty_redis",
    "postgres",
    "redis_server",
    "server",
    "spawn_of",
    "until",
]
