"""The worker in `examples/worker` does what it says, in place and with a real worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.site import Worker
from tests.patience import PATIENCE
from tests.servers.redis_fixtures import another_redis

__all__ = ["another_redis"]

ROOT = Path(__file__).parents[2]
MODULE = "examples.worker.celery_app"
TWICE = """\
shipped: parcel with the RECEIPT OF A-17 OVER 40
shipped: parcel with the RECEIPT OF A-17 OVER 40
refused: DeclinedError('A-18')
refused: DeclinedError('A-18')
the second report is a duplicate: {duplicate}
reported: {{'report of 2026-11'}}
charges: 1
"""


@pytest.mark.row("J11")
@pytest.mark.parametrize("way", ["in place", "worker"])
def test_the_shop_sends_everything_twice(way, tmp_path, another_redis):
    environment = {"WORKER_LEDGER": str(tmp_path / "ledger")}
    workers = []
    if way == "worker":
        environment["REDIS_URL"] = another_redis().url
        words = [sys.executable, "-m", "celery", "-A", MODULE, "worker", "-c", "1", "-l", "WARNING"]
        hasty = ["--without-mingle", "--without-gossip"]
        workers.append(Worker([*words, *hasty], environment, tmp_path / "log"))
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", MODULE],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        for worker in workers:
            worker.stop()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == TWICE.format(duplicate=way == "worker")
