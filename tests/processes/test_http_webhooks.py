"""The receiver of webhooks as its page starts it: by uvicorn, told by the environment alone."""

import re
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from oncekey import Once
from tests.patience import PATIENCE
from tests.processes.http_commands import commands, in_order, send
from tests.processes.webhooks import GO_ON

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "http-webhooks.md"
DAY = 24 * 3600


@pytest.fixture
def url(empty_redis, tmp_path, monkeypatch):
    """Where a receiver listens that takes its time, until `go on` is in its folder."""
    monkeypatch.setenv("REDIS_URL", empty_redis.url)
    monkeypatch.setenv("WEBHOOKS_FILE", str(tmp_path / "webhooks.txt"))
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "--factory", "tests.processes.webhooks:app"),
            *("--port", "0", "--no-access-log"),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        found = (re.search(r"running on (http://[\d.:]+)", line) for line in lines)
        yield next(match[1] for match in found if match)
        process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.mark.row("W1", "W2", "W3", "W4", "W5")
def test_the_page_tells_what_a_provider_hears_and_what_redis_shows(url, empty_redis, tmp_path):
    for command in commands(PAGE):
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(send, request, url) for request in command.requests]
            wait(asked, return_when=FIRST_COMPLETED)
            if len(asked) > 1:
                with empty_redis.client() as client:
                    assert DAY + 240 < client.ttl("idempotency:anchor-tx-12345") <= DAY + 300
            (tmp_path / GO_ON).touch()  # of two that come together one is refused by now
        answers = in_order(one.result() for one in asked)
        assert answers == in_order(command.answers), command.text
    assert (tmp_path / "webhooks.txt").read_text() == "webhook-001\n"
    with empty_redis.client() as client:
        assert client.keys() == [b"idempotency:anchor-tx-12345"]
        assert DAY - 60 < client.ttl("idempotency:anchor-tx-12345") <= DAY
    once = Once(empty_redis.url)
    record = once.get("anchor-tx-12345")
    once.close()
    assert record is not None
    assert (record.status, record.label) == ("completed", "POST /webhook")
