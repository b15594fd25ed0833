"""A line to a Redis that is cut when a test says so: the request arrives, the reply does not."""

import contextlib
import socket
import struct
import threading


class CutLine:
    """Passes bytes to the server and back until a reply is to be lost.

    `lose` says which: 1 is the next one, 0 none; `cut = True` is short for the next one.
    With `reset` the line is not closed but reset, as by a machine that has restarted.
    `instead` is called before the line is cut, in place of passing the request on.
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.lose = 0
        self.instead = None
        self.reset = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def cut(self):
        return self.lose == 1

    @cut.setter
    def cut(self, wanted):
        self.lose = int(wanted)

    def _accept(self):
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller):
        """Pass one request and one reply at a time, each small enough for one packet."""
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:  # the server is down
            caller.close()
            return
        with caller, server, contextlib.suppress(ConnectionError):
            while request := caller.recv(65536):
                if self.reset:
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                cut, self.lose = self.lose == 1, max(0, self.lose - 1)
                if cut and self.instead is not None:
                    self.instead()
                    return
                server.sendall(request)
                reply = server.recv(65536)
                if cut or not reply:
                    return
                caller.sendall(reply)

    def close(self):
        self._listener.close()
