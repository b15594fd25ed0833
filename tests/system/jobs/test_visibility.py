"""A task of Celery that runs longer than Redis keeps its message from other workers."""

import subprocess
import sys

import pytest

from tests.patience import PATIENCE, until
from tests.servers.redis_fixtures import another_redis

__all__ = ["another_redis"]

WORKER = "-m celery -A tests.system.jobs.visibility worker --concurrency=6 --loglevel=DEBUG"


@pytest.mark.row("J1")
def test_a_task_of_9_seconds_with_a_visibility_of_2_is_executed_once(
    another_redis, tmp_path, monkeypatch
):
    server = another_redis()
    monkeypatch.setenv("VISIBILITY_BROKER", server.url.removesuffix("/0"))
    from tests.system.jobs.visibility import VISIBILITY, app

    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        worker = subprocess.Popen([sys.executable, *WORKER.split()], stdout=out, stderr=out)
    try:
        with server.client(db=1) as broker, server.client(db=3) as ledger:
            bare, protected = (app.send_task(name, (name,)) for name in ("bare", "protected"))
            until(lambda: ledger.llen("protected") and ledger.llen("bare"), log.read_text)
            # Workers restore what is overdue when they happen to look; a second consumer does now.
            with app.connection_for_read(transport_options=VISIBILITY) as consumer:

                def redelivered():
                    consumer.default_channel.qos.restore_visible(interval=1)
                    seen = log.read_text()
                    again = seen.count(f"Task protected[{protected.id}] received") > 1
                    return again and f"protected[{protected.id}] comes back in 0.5 s" in seen

                until(redelivered, log.read_text)
                until(lambda: ledger.llen("bare") > 1, log.read_text)
            ledger.rpush("protected may end", 1)
            assert protected.get(timeout=PATIENCE, interval=0.05) == "worked protected"
            assert ledger.llen("protected") == 1
            ledger.rpush("bare may end", *range(100))  # what the broker does to the unprotected
            assert bare.get(timeout=PATIENCE, interval=0.05) == "worked bare"
            until(lambda: not broker.llen("celery") and not broker.hlen("unacked"), log.read_text)
            assert ledger.llen("protected") == 1
            app.backend.result_consumer.stop()
            app.close()
    finally:
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
