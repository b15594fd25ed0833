"""A site: one application behind the middleware, with all that a test wants to see of it.

Each test has its own, with its own store, on the one server of its framework. The tests block
and speak real HTTP, so that they are the same for every framework.
"""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx

from oncekey import Once, Record
from oncekey.core.requests import Scan
from oncekey.observe import Event
from oncekey.observe.log import LogObserver
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.patience import PATIENCE, until

WHICH = "x-site"
"""The header by which a server with many applications knows which one is meant."""
TOKENS = {"Bearer ann-1": "ann", "Bearer ann-2": "ann", "Bearer bob-1": "bob"}
"""Who is who: what the authentication of every framework is told. Ann has refreshed her token."""


class Run(NamedTuple):
    """A handler really ran, and this is what it was asked."""

    route: str
    body: bytes


class Gate:
    """Two events of one meeting: a handler is inside, and may go on."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def enter(self) -> None:
        self.inside.set()
        assert self.go_on.wait(PATIENCE)

    def until_inside(self) -> None:
        assert self.inside.wait(PATIENCE)


class Site:
    """What a test sees of the application, and what the application's handlers see of the test."""

    def __init__(
        self,
        number: str,
        address: tuple[str, int],
        settings: dict[str, Any],
        beside: "Site | None" = None,
    ) -> None:
        """`beside` is a site whose store it shares, and nothing else: another process."""
        self.number = number
        self.address = address
        self.settings = settings
        self.claims = settings.get("claim") == "handler"
        self.clock: FakeClock = FakeClock() if beside is None else beside.clock
        memory = MemoryStore(clock=self.clock) if beside is None else beside.store.store
        self.store: FaultyStore = FaultyStore(memory)
        self.events: list[Event] = []
        self.observers: list[Callable[[Event], None]] = [self.events.append]
        self.once = Once(self.store, observers=[self._hear, LogObserver()])  # type: ignore[arg-type]  # its verbs are made at run time
        self.runs: list[Run] = []
        self.gate = Gate()
        self.facts: dict[str, Any] = {}
        self._threads = ThreadPoolExecutor(max_workers=32)
        host, port = address
        self.client = httpx.Client(
            base_url=f"http://{host}:{port}",
            headers={WHICH: number},
            timeout=PATIENCE,
            verify=False,  # noqa: S501 - nothing here is encrypted, and certificates load slowly
            trust_env=False,
            # A server may close a connection after a failure, just when the next request uses it.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    # Asking

    def post(self, path: str = "/orders", key: str | None = None, **more: Any) -> httpx.Response:
        """The answer to a POST; `key` goes into `Idempotency-Key`."""
        return self.ask("POST", path, key, **more)

    def ask(
        self, method: str, path: str = "/orders", key: str | None = None, **more: Any
    ) -> httpx.Response:
        """The answer to a request with a small JSON body, unless it is given another one."""
        headers = {**({} if key is None else {"idempotency-key": key}), **more.pop("headers", {})}
        if not {"json", "data", "content", "files"} & more.keys():
            more["json"] = {"item": "tea"}
        return self.client.request(method, path, headers=headers, **more)

    def start(self, *args: Any, **more: Any) -> "Future[httpx.Response]":
        """The same in the background."""
        return self._threads.submit(self.post, *args, **more)

    def connect(self, head: str, body: bytes = b"") -> socket.socket:
        """A plain connection on which this request was sent; lines of `head` end in \\n."""
        lines = [*head.strip().splitlines(), "Host: here", f"{WHICH}: {self.number}"]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        connection = socket.create_connection(self.address, timeout=PATIENCE)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return connection

    def raw(self, head: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and everything that came, for requests that no proper client sends."""
        with self.connect(f"{head.strip()}\nConnection: close", body) as connection:
            got = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(got.split(b" ", 2)[1]), got

    # Seeing

    def records(self) -> list[Record]:
        """What the store holds; asked past the counting of its calls."""
        return list(self.store.store.scan(Scan()).records)

    def record(self) -> Record:
        """The one record there is."""
        (record,) = self.records()
        return record

    def _hear(self, event: Event) -> None:
        for observer in self.observers:
            observer(event)

    def told(self, name: str) -> list[Event]:
        """What the observers heard of this kind."""
        return [event for event in self.events if event.name == name]

    def until(self, condition: Callable[[], object]) -> None:
        """The condition holds."""
        until(condition)

    def close(self) -> None:
        """Nothing is held any more, and everybody has their answer."""
        self.store.heal()
        self.gate.go_on.set()
        self._threads.shutdown()
        self.client.close()
