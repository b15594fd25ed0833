"""Serve an application of the environment on a free port until the block ends."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.patience import until
from tests.servers.ports import free_port
from tests.system.http.environment import variables


@contextmanager
def served(
    target: str, folder: Path, *words: str, python: Path | str = sys.executable
) -> Iterator[str]:
    """Yield the address of an ASGI application, or of what makes one, behind uvicorn."""
    port = free_port()
    options = ("--port", str(port), "--log-level", "warning", *words)
    command: Sequence[object] = [python, "-m", "uvicorn", target, *options]
    log = folder / "served.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=variables(), stdout=out, stderr=out
        )
        try:
            until(lambda: process.poll() is not None or _answers(port))
            assert process.poll() is None, log.read_text("utf-8")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
    except httpx.TransportError:
        return False
    return True
