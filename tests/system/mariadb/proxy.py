"""A way to MariaDB that counts what is asked, and can lose a reply or fall silent."""

import socket
import threading
from contextlib import suppress

HEADER = 4
QUERY = 3
"""The command of a statement in text."""


class Proxy:
    """Stands between a client and the server, on a port of its own; without TLS."""

    def __init__(self, server_port):
        """It listens."""
        self.asked = 0
        self.silent = threading.Event()
        self._lose = False
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose_the_next_reply(self):
        """The next statement arrives and is done; its answer and its connection are lost."""
        self._lose = True

    def close(self):
        """Nothing goes through any more."""
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self):
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

    def _forward(self, client, server):
        """Packets are a length of three bytes, a number and a body, which starts a command."""
        kept = b""
        with suppress(OSError):
            while data := client.recv(65536):
                kept += data
                while len(kept) >= HEADER:
                    length = HEADER + int.from_bytes(kept[:3], "little")
                    if len(kept) < length:
                        break
                    self.asked += kept[3] == 0 and kept[HEADER] == QUERY
                    kept = kept[length:]
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _back(self, client, server):
        with suppress(OSError):
            while data := server.recv(65536):
                if self.silent.is_set():
                    continue
                if self._lose:
                    self._lose = False
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
