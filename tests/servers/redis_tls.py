"""A small TLS terminator in front of a plain server, with a certificate made for the test."""

import socket
import ssl
import threading

import trustme


def make_certificate(folder):
    """The certificate of an authority, and one for localhost that it has signed, with its key."""
    authority, server = folder / "authority.pem", folder / "server.pem"
    issuer = trustme.CA()
    issuer.cert_pem.write_to_path(str(authority))
    issuer.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(server))
    return authority, server


class Terminator:
    """Speaks TLS to callers and plainly to the server behind it."""

    def __init__(self, port, certificate):
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller):
        """One request and one reply at a time; a caller who does not trust us hangs up."""
        try:
            with (
                self._context.wrap_socket(caller, server_side=True) as secure,
                socket.create_connection(("127.0.0.1", self._port)) as server,
            ):
                while request := secure.recv(65536):
                    server.sendall(request)
                    secure.sendall(server.recv(65536))
        except OSError:
            caller.close()

    def close(self):
        self._listener.close()
