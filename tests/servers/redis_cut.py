"""A line to a Redis that is cut when a test says so: the request arrives, the reply does not."""

import socket
import threading


class CutLine:
    """Passes bytes to the server and back until `cut` is set; then the next reply is lost.

    `instead` is called before the line is cut, in place of passing the request on.
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.cut = False
        self.instead = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller):
        """One request and one reply at a time, each small enough for one packet."""
        with caller, socket.create_connection(("127.0.0.1", self._port)) as server:
            while request := caller.recv(65536):
                cut, self.cut = self.cut, False
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
