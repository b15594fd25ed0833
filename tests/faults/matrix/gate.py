"""A gate before a server: it lets through, freezes, delays, is cut, or leads elsewhere."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterable


class Gate:
    """Passes bytes both ways between its own port and the server's."""

    def __init__(self, target: int) -> None:
        """It lets everything through."""
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._frozen = threading.Event()
        self._barred: frozenset[str] = frozenset()
        self._delay = 0.0
        self._closing = False
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def freeze(self) -> None:
        """Nothing goes through, and nobody is told; connections are accepted all the same."""
        self._frozen.set()

    def bar(self, callers: Iterable[str]) -> None:
        """Nothing goes through for callers with these addresses, until `thaw`."""
        self._barred = frozenset(callers)

    def thaw(self) -> None:
        """What was held back goes on."""
        self._frozen.clear()
        self._barred = frozenset()

    def delay(self, seconds: float) -> None:
        """Whatever comes from the server comes so much later."""
        self._delay = seconds

    def cut(self) -> None:
        """All connections break, with what was on them."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def lead_to(self, target: int) -> None:
        """New connections go to another server; old ones break."""
        self.target = target
        self.cut()

    def close(self) -> None:
        """Nobody is let in any more."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closing:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            caller.close()
            return
        pair, address = (caller, server), caller.getpeername()[0]

        def frozen() -> bool:
            return self._frozen.is_set() or address in self._barred

        with self._lock:
            self._pairs.add(pair)
        with caller, server, contextlib.suppress(OSError):
            while not self._closing:
                if frozen():
                    time.sleep(0.005)
                    continue
                for ready in select.select(pair, [], [], 0.05)[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    while frozen() and not self._closing:
                        time.sleep(0.005)
                    if ready is server and self._delay:
                        time.sleep(self._delay)
                    (server if ready is caller else caller).sendall(data)
        with self._lock:
            self._pairs.discard(pair)
