"""The programs on the pages about arq and SAQ run, with the redis-py that these queues need."""

import os
import subprocess

import pytest

from tests.docs.snippets import blocks
from tests.outside.environment import ROOT
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.system.queues import environment
from tests.system.queues.conftest import PATHS

__all__ = ["empty_redis", "redis_server"]

RUN = """
import ast, asyncio, inspect, sys

code = compile(sys.stdin.read(), "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def main():
    names = {"__name__": "page"}
    begun = eval(code, names)
    if inspect.isawaitable(begun):
        await begun


asyncio.run(main())
"""


@pytest.mark.parametrize("queue", ["arq", "saq"])
def test_the_program_on_the_page_runs_and_leaves_the_record_of_one_job(queue, empty_redis):
    page = (ROOT / "docs" / f"jobs-{queue}.md").read_text("utf-8")
    [program] = [block.code for block in blocks(page) if block.language == "text"]
    assert "redis://localhost" in program
    program = program.replace("redis://localhost", empty_redis.url)
    done = subprocess.run(
        [environment.prepare(), "-c", RUN],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PATHS},
        input=program,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with empty_redis.client() as client:
        assert client.keys("idempotency:enqueue:*") == [b"idempotency:enqueue:page.charge/A-17"]
