"""A site with Celery workers for each of its pools, for the suite of `tests/jobs`."""

import functools

import pytest

pytest.register_assert_rewrite("tests.jobs.site", "tests.jobs.suite")

from tests.jobs.queues import celery  # noqa: E402 - see above
from tests.jobs.site import Site  # noqa: E402 - see above
from tests.servers.redis import RedisServer  # noqa: E402 - see above

POOLS = ("prefork", "threads", "solo", "gevent", "eventlet")


class Queue(celery.Queue):
    """The queue of `tests/jobs`, whose workers have this pool."""

    def __init__(self, pool, url, once):
        super().__init__(url, once)
        self._pool = pool

    def words(self):
        return [*super().words(), f"--pool={self._pool}"]

    def revive(self, job_id):
        """Restore what is overdue: workers with greenlets never find the time to look for it."""
        super().revive(job_id)
        with self.app.connection_for_read() as connection:
            connection.default_channel.qos.restore_visible(interval=1)


@pytest.fixture(scope="session")
def open_site(tmp_path_factory):
    sites, servers = {}, []

    def server():
        servers.append(RedisServer(tmp_path_factory.mktemp("pools")).start())
        return servers[-1]

    def site_of(pool):
        if pool not in sites:
            kind = functools.partial(Queue, pool)
            sites[pool] = Site(kind, server(), server(), tmp_path_factory.mktemp(pool))
            for _ in range(2):
                sites[pool].start()
        return sites[pool]

    yield site_of
    for site in sites.values():
        site.close()
    for one in servers:
        one.stop()


@pytest.fixture(
    params=[pytest.param(pool, marks=pytest.mark.xdist_group(f"pool {pool}")) for pool in POOLS]
)
def site(request, open_site):
    """The queue with its workers."""
    return open_site(request.param)
