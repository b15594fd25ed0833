import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Worker:
    """A process of `worker.py`. Whatever it prints to stderr is shown when it fails."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.worker", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line == word, self.process.communicate(timeout=30)[1]

    def signal(self, signal: int) -> None:
        os.kill(self.process.pid, signal)

    def output(self, code: int = 0) -> str:
        printed, complaints = self.process.communicate("go on\n", timeout=120)
        assert self.process.returncode == code, complaints
        return printed.strip()


@pytest.fixture
def files(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.touch()
    return str(tmp_path / "records.db"), str(ledger)


@pytest.fixture
def spawn():
    workers: list[Worker] = []

    def start(*arguments: str) -> Worker:
        workers.append(Worker(*arguments))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()
