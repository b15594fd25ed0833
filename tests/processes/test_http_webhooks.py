"""The receiver of webhooks as its page starts it: by uvicorn, told by the environment alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from oncekey import Once
from tests.processes.http_commands import commands, in_order, send_all

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "http-webhooks.md"
DAY = 24 * 3600


@pytest.fixture
def url(empty_redis, tmp_path, monkeypatch):
    """Where a receiver listens that takes a second for each event."""
    monkeypatch.setenv("REDIS_URL", empty_redis.url)
    monkeypatch.setenv("WEBHOOKS_FILE", str(tmp_path / "webhooks.txt"))
    monkeypatch.setenv("WEBHOOKS_SECONDS", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "--factory", "examples.webhooks.app:app"),
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
        process.communicate(timeout=30)


@pytest.mark.row("W1", "W2", "W3", "W4", "W5")
def test_the_page_tells_what_a_provider_hears_and_what_redis_shows(url, empty_redis, tmp_path):
    for command in commands(PAGE):
        assert send_all(command, [url, url]) == in_order(command.answers), command.text
    assert (tmp_path / "webhooks.txt").read_text() == "webhook-001\n"
    with empty_redis.client() as client:
        assert client.keys() == [b"idempotency:anchor-tx-12345"]
        assert DAY - 60 < client.ttl("idempotency:anchor-tx-12345") <= DAY
    once = Once(empty_redis.url)
    record = once.get("anchor-tx-12345")
    once.close()
    assert record is not None
    assert (record.status, record.label) == ("completed", "POST /webhook")
