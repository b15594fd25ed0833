"""One site for each queue: a broker, a store and two worker processes. See `queues/__init__.py`.

A module in `queues/` that is there is tested.
"""

import importlib
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.jobs.site", "tests.jobs.suite")

from tests.jobs.site import Site  # noqa: E402 - see above
from tests.servers.redis import RedisServer  # noqa: E402 - see above

QUEUES = sorted(path.stem for path in (Path(__file__).parent / "queues").glob("[a-z]*.py"))


def group(name: str) -> pytest.MarkDecorator:
    """The tests of one queue run in one process, which starts its workers once."""
    return pytest.mark.xdist_group(f"jobs {name}")


@pytest.fixture(scope="session")
def open_site(tmp_path_factory):
    """Starts sites, one for each queue, and ends them."""
    sites = {}
    servers = []

    def server():
        servers.append(RedisServer(tmp_path_factory.mktemp("jobs")).start())
        return servers[-1]

    def site_of(name):
        if name not in sites:
            kind = importlib.import_module(f"tests.jobs.queues.{name}").Queue
            sites[name] = Site(kind, server(), server(), tmp_path_factory.mktemp(name))
            for _ in range(2):
                sites[name].start()
        return sites[name]

    yield site_of
    for site in sites.values():
        site.close()
    for one in servers:
        one.stop()


@pytest.fixture(params=[pytest.param(name, marks=group(name)) for name in QUEUES])
def site(request, open_site):
    """The queue with its workers."""
    return open_site(request.param)
