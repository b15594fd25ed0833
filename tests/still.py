"""A server that stands still: what it is told waits, for as long as the test says."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oncekey import StoreError
from tests.patience import until


def patiently(verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a verb answers of a store that soon gives up: it is asked until it is in time."""

    def asked() -> list[Any] | None:
        with suppress(StoreError):
            return [verb(*arguments, **options)]
        return None

    return until(asked)[0]


@contextmanager
def standing_still(server: Any) -> Iterator[None]:
    """The process of the server does nothing; connections to it are made, and not answered."""
    pid = server.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def connections_to(port: int) -> set[str]:
    """Where the connections begin that lead to that port, answered or not."""
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {row[1] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"}
