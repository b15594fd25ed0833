"""A task that runs longer than the broker waits for its acknowledgement."""

import os
import subprocess
import sys

import pytest

from tests.patience import PATIENCE, until
from tests.servers.redis_fixtures import another_redis

__all__ = ["another_redis"]


@pytest.mark.row("J1")
def test_a_task_that_outlasts_the_broker_is_executed_once(another_redis, tmp_path):
    server = another_redis()
    url = server.url.removesuffix("/0")
    told = {"PATIENT_BROKER": url}
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "celery", "-A", "tests.jobs.celery_patient", "worker"),
            *("--concurrency=6", "--loglevel=WARNING", "--without-mingle", "--without-gossip"),
        ],
        env=os.environ | told,
    )
    try:
        with server.client(db=1) as broker, server.client(db=3) as ledger:
            os.environ.update(told)
            from tests.jobs.celery_patient import app

            handles = [app.send_task(name, (name,)) for name in ("bare", "protected")]
            results = [handle.get(timeout=PATIENCE, interval=0.05) for handle in handles]
            assert results == ["worked bare", "worked protected"]
            until(lambda: not broker.llen("celery") and not broker.hlen("unacked"))
            assert ledger.llen("protected") == 1
            assert ledger.llen("bare") > 1  # what the broker does to whom nobody protects
            app.backend.result_consumer.stop()
            app.close()
    finally:
        for name in told:
            os.environ.pop(name, None)
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
