"""Workers as the harness sees them: started, killed, stopped, and started again when they die."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.matrix.spec import Spec
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[3]


class BrokenWorkerError(AssertionError):
    """A worker ended in a way that nobody meant."""


class Herd:
    """The mother of the workers, and what she says. One serves a whole run of the matrix."""

    def __init__(self) -> None:
        # Workers that are killed by the hundred are not there to be traced.
        untraced = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
        self._mother = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.faults.matrix.zygote"],
            cwd=ROOT,
            env=untraced,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        first = self._said.get(timeout=PATIENCE)
        if "ready" not in first:
            raise BrokenWorkerError("the mother of the workers did not start")

    def _listen(self) -> None:
        assert self._mother.stdout is not None
        for line in self._mother.stdout:
            self._said.put(msgspec.json.decode(line))
        self._said.put({"gone": True})

    def order(self, **order: Any) -> None:
        assert self._mother.stdin is not None
        self._mother.stdin.write(msgspec.json.encode(order) + b"\n")
        self._mother.stdin.flush()

    def said(self, seconds: float) -> dict[str, Any] | None:
        """The next thing she says, if she does within this time."""
        try:
            fact = self._said.get(timeout=seconds)
        except queue.Empty:
            return None
        if "gone" in fact:
            raise BrokenWorkerError("the mother of the workers is gone")
        return fact

    def close(self) -> None:
        """She and all her workers are gone."""
        assert self._mother.stdin is not None
        self._mother.stdin.close()
        code = self._mother.wait(PATIENCE)
        self._listener.join()
        assert self._mother.stdout is not None
        self._mother.stdout.close()
        if code != 0:
            raise BrokenWorkerError("the mother of the workers ended badly")


class Crowd:
    """The workers of one run."""

    def __init__(self, herd: Herd) -> None:
        self._herd = herd
        self._specs: dict[str, Spec] = {}
        self.running: dict[str, int] = {}
        self.kills = 0
        self.stops = 0
        self._ending = False

    def start(self, spec: Spec) -> None:
        """The worker runs, and will run again whenever it is killed."""
        self._specs[spec.name] = spec
        self._herd.order(spec=msgspec.to_builtins(spec))
        self.running[spec.name] = 0

    def kill(self, name: str) -> None:
        """The worker is killed; it is started again when it is gone."""
        self._herd.order(name=name, signal=int(signal.SIGKILL))

    def stop(self, name: str) -> None:
        """The worker stands still, with all its threads."""
        self.stops += 1
        self._herd.order(name=name, signal=int(signal.SIGSTOP))

    def go_on(self, name: str) -> None:
        """The worker goes on where it stood."""
        self._herd.order(name=name, signal=int(signal.SIGCONT))

    def tend(self, seconds: float) -> None:
        """What happened within this time is seen to: the dead are replaced."""
        until = time.monotonic() + seconds
        while True:
            fact = self._herd.said(max(0.0, until - time.monotonic()))
            if fact is None:
                return
            if "started" in fact:
                if fact["started"] in self._specs:
                    self.running[fact["started"]] = fact["pid"]
                continue
            name, code = fact["ended"], fact["code"]
            if name not in self._specs:
                continue  # of a run that was given up
            self.running.pop(name, None)
            if code == -signal.SIGKILL:
                self.kills += 1
                spec = self._specs[name]
                if not self._ending:
                    spec = msgspec.structs.replace(spec, life=spec.life + 1)
                    self.start(spec)
            elif code != 0:
                raise BrokenWorkerError(f"worker {name} ended with {code}:\n{self._trouble(name)}")

    def _trouble(self, name: str) -> str:
        path = Path(self._specs[name].folder) / f"trouble.{name}"
        return path.read_text()[-3000:] if path.exists() else "it left no word"

    def stopped(self) -> list[str]:
        """The workers that stand still, as the system sees it."""
        return [name for name, pid in self.running.items() if pid and state_of(pid) == "T"]

    def until_done(self, each: Callable[[], None] = lambda: None, every: float = 0.02) -> None:
        """All workers have ended well; meanwhile `each` is called again and again."""
        give_up = time.monotonic() + 3 * PATIENCE  # for all the work, and not for one answer
        while self.running:
            if time.monotonic() > give_up:
                self.end()
                raise BrokenWorkerError(f"workers never ended: {sorted(self._specs)}")
            self.tend(every)
            each()

    def end(self) -> None:
        """Nobody works any more."""
        self._ending = True
        for name in list(self.running):
            self.kill(name)
            self.go_on(name)
        give_up = time.monotonic() + PATIENCE
        while self.running and time.monotonic() < give_up:
            self.tend(0.02)


def state_of(pid: int) -> str:
    """The letter by which the system tells how a process is; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def children_of(pid: int) -> list[int]:
    """The processes that this one has started."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def wait_until(condition: Callable[[], object], what: str) -> None:
    """The condition holds; else it is said what never happened."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"{what}: it never happened")
        time.sleep(0.005)
