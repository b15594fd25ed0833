"""A site for each queue that has a process of its own, for the suite of `tests/jobs`."""

import json
import os
import subprocess
import sys

import pytest

pytest.register_assert_rewrite("tests.jobs.site", "tests.jobs.suite")

from oncekey.jobs import Enqueued  # noqa: E402 - see above
from tests.jobs import queues  # noqa: E402 - see above
from tests.jobs.site import Site  # noqa: E402 - see above
from tests.outside.environment import ROOT  # noqa: E402 - see above
from tests.servers.postgres_fixtures import postgres  # noqa: E402 - see above
from tests.servers.redis import RedisServer  # noqa: E402 - see above
from tests.system.queues import environment  # noqa: E402 - see above

__all__ = ["postgres"]

WORDS = {
    "arq": ("-m", "arq", "tests.system.queues.arq.WorkerSettings"),
    "django": ("-m", "tests.system.queues.django"),
    "django6": ("-m", "tests.system.queues.django"),
    "procrastinate": (
        *("-m", "procrastinate", "--app", "tests.system.queues.procrastinate.app", "worker"),
        *("--concurrency=1", "--fetch-job-polling-interval=0.2"),
    ),
    "saq": ("-m", "saq", "tests.system.queues.saq.settings"),
}
OF_ITS_OWN = ("arq", "saq")
"""Those that want another redis-py than ours have another environment."""
IN_POSTGRES = ("django", "django6", "procrastinate")
PYTHON_OF_DJANGO = environment.python_of_django()
"""Django 6 is tried where there is a Python that it runs on."""
PATHS = os.pathsep.join(map(str, (ROOT / "src", ROOT)))


class Queue(queues.Queue):
    """The queue is in another process, which does what it is told."""

    def __init__(self, name, python, url, store, ledger):
        self.url = url
        self._name, self._python = name, str(python)
        self._process = subprocess.Popen(
            [python, "-m", "tests.system.queues.program", name.rstrip("6"), url, store],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS, "JOBS_LEDGER": ledger},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()  # it is ready

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
        return self._answer()

    def _answer(self):
        answer = json.loads(self._process.stdout.readline())
        if "failed" in answer:
            raise queues.FailedError(answer["failed"])
        return answer["value"]


@pytest.fixture(scope="session")
def open_site(tmp_path_factory, postgres):
    sites, servers = {}, []

    def server():
        servers.append(RedisServer(tmp_path_factory.mktemp("queues")).start())
        return servers[-1]

    def site_of(name):
        if name not in sites:
            python = sys.executable
            if name in OF_ITS_OWN:
                python = environment.prepare()
            elif name == "django6":
                python = environment.prepare_django(PYTHON_OF_DJANGO)
            broker, store = server(), server()

            def opened(url, _once):
                place = postgres.new_database() if name in IN_POSTGRES else url
                return Queue(name, python, place, store.url, f"{broker.url[:-1]}1")

            sites[name] = Site(opened, broker, store, tmp_path_factory.mktemp(name))
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
        pytest.param(
            name,
            marks=pytest.mark.xdist_group("queues" if name in OF_ITS_OWN else f"queue {name}"),
        )
        for name in WORDS
        if name != "django6" or PYTHON_OF_DJANGO
    ]
)
def site(request, open_site):
    """The queue with its workers."""
    return open_site(request.param)
