"""The load of the HTTP benchmark, made where wrk is not installed, reads every kind of answer."""

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from bench.cases.http_load import CONNECTIONS, LoadError, by_hand, requests_by_hand
from bench.cases.http_server import BODY
from tests.patience import PATIENCE

MANY = 3 * CONNECTIONS
LENGTH = [b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"]
PIECES = [b"HTTP/1.1 201 Cre", b"ated\r\ncontent-length: 2\r\n\r\n{", b"}"]
CHUNKS = [b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n", b"1a\r\n{" + b" " * 24]
CHUNKS += [b"}\r", b"\n1\r\n \r\n0\r\n", b"\r\n"]
REFUSAL = [b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n"]
HALF = [b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{"]
ENDLESS = [b"HTTP/1.1 201 Created\r\n\r\n{}"]


@contextmanager
def serving(pieces, *, answers=MANY):
    """A server that sends each answer in these pieces, and hangs up after so many of them."""

    def accept():
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=answer, args=[caller], daemon=True).start()

    def answer(caller):
        with suppress(ConnectionError), caller, caller.makefile("rb") as requests:
            for _ in range(answers):
                while requests.readline().strip():
                    pass
                if not requests.read(len(BODY)):
                    return
                for piece in pieces:
                    caller.sendall(piece)
            caller.shutdown(socket.SHUT_WR)
            requests.read()

    # The listener is held from here on: the system may choose the port.
    with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as listening:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join(PATIENCE)


@pytest.mark.parametrize("pieces", [LENGTH, PIECES, CHUNKS], ids=["length", "pieces", "chunks"])
def test_an_answer_is_read_to_its_end(pieces):
    with serving(pieces) as port:
        sent = requests_by_hand(port, MANY)
    assert (sent.requests, sent.refused) == (MANY, 0)


@pytest.mark.parametrize("kind", ["none", "new", "duplicate"])
def test_requests_of_every_kind_are_answered(kind):
    with serving(CHUNKS) as port:
        seconds = 0.05
        while not (sent := by_hand(port, kind, seconds)).requests:
            seconds *= 2  # a busy machine needs more time
    assert not sent.refused


def test_what_is_no_success_is_counted():
    with serving(REFUSAL) as port:
        sent = requests_by_hand(port, MANY)
    assert (sent.requests, sent.refused) == (0, MANY)


def test_a_connection_that_is_closed_between_two_requests_is_opened_again():
    with serving(CHUNKS, answers=1) as port:
        sent = requests_by_hand(port, MANY)
    assert (sent.requests, sent.refused) == (MANY, 0)


@pytest.mark.parametrize(
    ("pieces", "answers", "told"),
    [
        (HALF, 1, "has hung up instead of answering"),
        (CHUNKS[:3], 1, "has hung up instead of answering"),
        (LENGTH, 0, "has hung up instead of answering"),
        (ENDLESS, 1, "does not tell how long"),
    ],
    ids=["half", "half in chunks", "nothing", "no length"],
)
def test_an_answer_without_an_end_is_an_error(pieces, answers, told):
    with serving(pieces, answers=answers) as port, pytest.raises(LoadError, match=told):
        requests_by_hand(port, 1)
