"""A line to a server that loses replies: the request arrives, its answer and the line are lost."""

import contextlib
import select
import socket
import threading


class LossyLine:
    """Passes bytes both ways; of the next verbs those get no reply that `plan` marks as lost.

    `is_verb` tells the request of a verb from what a driver says to open a connection. A request
    is small and arrives as a whole; a reply need not.
    """

    def __init__(self, port, is_verb):
        self._server_port, self._is_verb = port, is_verb
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.plan = []
        self.verbs = 0
        self.lost = 0
        self._closing = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose(self, count):
        """The next replies are lost."""
        self.plan = [True] * count

    def _accept(self):
        while True:
            caller, _ = self._listener.accept()
            if self._closing:
                caller.close()
                return
            self._threads.append(threading.Thread(target=self._serve, args=(caller,)))
            self._threads[-1].start()

    def _serve(self, caller):
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except ConnectionError:  # the server is down, and whoever calls shall see that
            caller.close()
            return
        with caller, server, contextlib.suppress(ConnectionError):
            losing = False
            while not self._closing:
                for ready in select.select([caller, server], [], [], 0.1)[0]:
                    data = ready.recv(65536)
                    if not data or (losing and ready is server):
                        self.lost += losing
                        return
                    if ready is caller and self._is_verb(data):
                        losing = bool(self.plan) and self.plan.pop(0)
                        self.verbs += 1
                    (server if ready is caller else caller).sendall(data)

    def close(self):
        """Nothing goes through any more."""
        self._closing = True
        with socket.create_connection(("127.0.0.1", self.port)):  # wakes who accepts
            self._threads[0].join()
        for thread in self._threads:
            thread.join()
        self._listener.close()


def is_redis_verb(data):
    return b"EVAL" in data  # EVALSHA is one of them


def is_mysql_verb(data):
    return b"CALL oncekey_" in data


def is_postgres_verb(data):
    return data[:1] == b"B"  # a prepared statement is bound to its values, executed and awaited
