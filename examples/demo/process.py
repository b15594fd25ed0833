"""A server process, as whoever started it sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
MODULE = "examples.demo.server"
PATIENCE = 30


class ServerProcess:
    """A server that runs from here to the end of a `with` block, unless it is killed before."""

    def __init__(self, *arguments: str, module: str = MODULE) -> None:
        """It is being started; whoever connects to `url` waits until it is ready."""
        self._url = ""
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        if not self._url:
            assert self._process.stdout is not None
            port = self._process.stdout.readline().strip()
            if not port:
                msg = f"the server did not start; it ended with {self._process.wait(PATIENCE)}"
                raise RuntimeError(msg)
            self._url = f"http://127.0.0.1:{port}"
        return self._url

    def kill(self) -> int:
        """It is gone, without a word to anybody; its exit code."""
        self._process.kill()
        return self._process.wait(PATIENCE)

    def stop(self) -> int:
        """It has finished what it was at, and ended; its exit code."""
        try:
            self._process.communicate(timeout=PATIENCE)  # its standard input ends
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
