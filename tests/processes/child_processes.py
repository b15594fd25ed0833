"""Processes of a test's own, which end with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


class Worker:
    """A process that runs one of our modules. What it prints to stderr is shown when it fails."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line == word, self.process.communicate(timeout=PATIENCE)[1]

    def signal(self, signal: int) -> None:
        os.kill(self.process.pid, signal)

    def check(self) -> None:
        """It has not failed so far."""
        if self.process.poll() is not None:
            assert self.process.returncode == 0, self.process.communicate()[1]

    def output(self, code: int = 0) -> str:
        printed, complaints = self.process.communicate("go on\n", timeout=PATIENCE)
        assert self.process.returncode == code, complaints
        return printed.strip()


@pytest.fixture
def spawn_of():
    """Starts processes of a module."""
    workers: list[Worker] = []

    def start(module: str, *arguments: str) -> Worker:
        workers.append(Worker(module, *arguments))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()
