"""A site for each queue that has an environment of its own, for the suite of `tests/jobs`."""

import json
import os
import subprocess

import pytest

pytest.register_assert_rewrite("tests.jobs.site", "tests.jobs.suite")

from oncekey.jobs import Enqueued  # noqa: E402 - see above
from tests.jobs import queues  # noqa: E402 - see above
from tests.jobs.site import Site  # noqa: E402 - see above
from tests.outside.environment import ROOT  # noqa: E402 - see above
from tests.servers.redis import RedisServer  # noqa: E402 - see above
from tests.system.queues import environment  # noqa: E402 - see above

QUEUES = ("arq", "saq")
WORDS = {
    "arq": ("-m", "arq", "tests.system.queues.arq.WorkerSettings"),
    "saq": ("-m", "saq", "tests.system.queues.saq.settings"),
}
PATHS = os.pathsep.join(map(str, (ROOT / "src", ROOT)))


class Queue(queues.Queue):
    """The queue is in another process, which does what it is told."""

    def __init__(self, name, python, url, store):
        self.url = url
        self._name, self._python = name, str(python)
        self._process = subprocess.Popen(
            [python, "-m", "tests.system.queues.program", name, url, store],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def words(self):
        return [self._python, *WORDS[self._name]]

    def put(self, job, *args):
        return self._ask("put", job, *args)

    def put_twice(self, job, *args):
        return self._ask("put_twice", job, *args)

    def put_once(self, job, *args):
        return Enqueued(*self._ask("put_once", job, *args))

    def result(self, job_id):
        return self._ask("result", job_id)

    def revive(self, job_id):
        self._ask("revive", job_id)

    def close(self):
        self._process.communicate()
        assert self._process.returncode == 0

    def _ask(self, method, *args):
        self._process.stdin.write(f"{json.dumps([method, args])}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "failed" in answer:
            raise queues.FailedError(answer["failed"])
        return answer["value"]


@pytest.fixture(scope="session")
def open_site(tmp_path_factory):
    sites, servers = {}, []

    def server():
        servers.append(RedisServer(tmp_path_factory.mktemp("queues")).start())
        return servers[-1]

    def site_of(name):
        if name not in sites:
            python, broker, store = environment.prepare(), server(), server()
            sites[name] = Site(
                lambda url, _once: Queue(name, python, url, store.url),
                broker,
                store,
                tmp_path_factory.mktemp(name),
            )
            sites[name].environment["PYTHONPATH"] = PATHS
            for _ in range(2):
                sites[name].start()
        return sites[name]

    yield site_of
    for site in sites.values():
        site.close()
    for one in servers:
        one.stop()


@pytest.fixture(
    params=[
        # One process makes the environment.
        pytest.param(name, marks=pytest.mark.xdist_group("queues"))
        for name in QUEUES
    ]
)
def site(request, open_site):
    """The queue with its workers."""
    return open_site(request.param)
