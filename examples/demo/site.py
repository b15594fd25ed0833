"""Servers on one store, in a folder that is gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from examples.demo.process import PATIENCE, ServerProcess
from examples.demo.server import BOOK, EVENTS
from examples.demo.talk import Ask, Exchange, send
from examples.payments.gateway import Charge, Gateway
from examples.webhooks.app import Receiver

# A dead server's claim is over after its lease. Server 1 waits for the gateway for longer than
# anybody looks on; server 3 keeps records for a second.
FIRST = ("--lease", "2s", "--time-out", "60")
SECOND = ("--lease", "2s")
THIRD = ("--lease", "2s", "--ttl", "1s")


class Site:
    """From here to the end of a `with` block."""

    def __init__(self) -> None:
        """All servers are being started."""
        self._folder = Path(tempfile.mkdtemp(prefix="oncekey-demo-"))
        self._gateway = Gateway(self._folder / BOOK)
        self._receiver = Receiver(self._folder / EVENTS)
        self._servers = {
            number: self._start(*said) for number, said in enumerate((FIRST, SECOND, THIRD), 1)
        }

    def send(self, ask: Ask, to: int = 1) -> Exchange:
        """The answer of that server."""
        # On the loopback nothing is encrypted, and loading certificates is slow.
        with httpx.Client(
            base_url=self._servers[to].url,
            timeout=PATIENCE,
            trust_env=False,
            verify=False,  # noqa: S501 - see above
        ) as client:
            return send(client, ask)

    def charges(self) -> list[Charge]:
        """The gateway's book."""
        return self._gateway.charges()

    def events(self) -> list[str]:
        """The events that were processed."""
        return self._receiver.processed()

    def kill(self) -> int:
        """Server 1 is killed; its exit code."""
        code = self._servers[1].kill()
        self._servers[1].stop()
        return code

    def restart(self) -> None:
        """Server 1 runs again."""
        self._servers[1] = self._start(*FIRST)

    def _start(self, *arguments: str) -> ServerProcess:
        store = f"sqlite:///{self._folder}/records.db"
        return ServerProcess("--store", store, "--folder", str(self._folder), *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            for server in self._servers.values():
                stack.callback(server.stop)
