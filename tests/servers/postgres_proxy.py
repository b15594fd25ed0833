"""A way to PostgreSQL that counts what is asked, and can lose a reply."""

import socket
import threading
from contextlib import suppress

CANCEL = (80877102).to_bytes(4)


class Proxy:
    """Stands between a client and the server, on a port of its own; without TLS."""

    def __init__(self, server_port: int) -> None:
        """It listens."""
        self.asked = 0
        self.cancels = 0
        """The number of cancel requests, each of which is a connection of its own."""
        self._lose = False
        self._silent_from: int | None = None
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose_the_next_reply(self) -> None:
        """The next statement arrives and is done; its answer and its connection are lost."""
        self._lose = True

    def fall_silent(self, after: int = 0) -> None:
        """Once so many more statements were asked, no reply comes through, and nothing is said."""
        self._silent_from = self.asked + after

    def speak_again(self) -> None:
        """New connections are served; what was held back is lost."""
        self._silent_from = None

    def close(self) -> None:
        """Nothing goes through any more."""
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            for target in (self._forward, self._back):
                thread = threading.Thread(target=target, args=(client, server), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Messages are a letter, a length and a body; the very first one has no letter."""
        kept, letter = b"", 0
        with suppress(OSError):
            while data := client.recv(65536):
                kept += data
                while len(kept) >= letter + 4:
                    length = letter + int.from_bytes(kept[letter : letter + 4])
                    if len(kept) < length:
                        break
                    self.asked += letter == 1 and kept[:1] in (b"S", b"Q")
                    self.cancels += letter == 0 and kept[4:8] == CANCEL
                    kept, letter = kept[length:], 1
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._lose:
                    self._lose = False
                    break
                if self._silent_from is not None and self.asked > self._silent_from:
                    continue
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
