"""The Taskiq worker in `examples/worker` does what it says, in memory and with a real worker."""

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
MODULE = "examples.worker.taskiq_app"
TWICE = """\
charged: receipt of A-17 over 40
shipped: parcel with the LABEL OF A-17
charged: receipt of A-17 over 40
shipped: parcel with the LABEL OF A-17
refused: DeclinedError('A-18')
refused: DeclinedError('A-18')
the second report is a duplicate: True
reported: {'report of 2026-11'}
charges: 1
parcels: 1
"""


@pytest.mark.row("J11")
@pytest.mark.parametrize("way", ["in memory", "worker"])
def test_the_shop_sends_everything_twice(way, tmp_path, another_redis):
    environment = {"WORKER_LEDGER": str(tmp_path / "ledger")}
    workers = []
    if way == "worker":
        environment["REDIS_URL"] = another_redis().url
        words = [sys.executable, "-m", "taskiq", "worker", f"{MODULE}:broker", "--workers=1"]
        workers.append(Worker(words, environment, tmp_path / "log"))
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
            worker.kill()  # a worker on a stream that is empty takes its time to stop
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == TWICE
