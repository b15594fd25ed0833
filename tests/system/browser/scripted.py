"""A server that answers each request for `/job` as the test has written down, and keeps a list."""

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from oncekey.events.client import client_path

PAGE = b"<!doctype html><link rel=icon href=data:,><title>a page</title>"
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


def event(offset, epoch="ab", mark="0c", **body):
    body = {"stage": "work", "seq": offset, "data": None, **body}
    return f"id: {epoch}.{offset}.{mark}\ndata: {json.dumps(body)}\n\n".encode()


def events(first, last, **body):
    return b"".join(event(offset, **body) for offset in range(first, last + 1))


def resync(reason, before="0.0.-"):
    data = json.dumps({"reason": reason})
    return f"event: resync\ndata: {data}\nid: {before}\n\n".encode()


def state(seq):
    return b'event: state\ndata: {"seq": %d}\n\n' % seq


@dataclass
class Answer:
    """The parts are sent one by one. Then the connection is held, ended, or cut off."""

    parts: tuple[bytes, ...] = ()
    end: str = "hold"
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(STREAM))


class Scripted:
    """`answers` are given one after another; the last one again and again."""

    def __init__(self):
        self.answers = []
        self.asked = []
        self.headers = []
        self.left = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.handle(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def handle(self, request):
        url = urlsplit(request.path)
        if url.path == "/":
            _send(request, 200, {"Content-Type": "text/html"}, PAGE)
        elif url.path == "/oncekey-events.js":
            kind = {"Content-Type": "text/javascript"}
            _send(request, 200, kind, client_path().read_bytes())
        else:
            self.asked.append({name: value[0] for name, value in parse_qs(url.query).items()})
            self.headers.append(dict(request.headers))
            self._play(request, self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def _play(self, request, answer):
        # Said to be longer than it is, a body is cut off when the connection ends.
        cut = {"Content-Length": "99999999"} if answer.end == "cut" else {}
        _send(request, answer.status, {**answer.headers, **cut}, *answer.parts)
        if answer.end == "hold":
            request.connection.settimeout(60)
            with contextlib.suppress(ConnectionError):
                request.connection.recv(1)  # nothing comes, but the end of the connection
            self.left.set()


def _send(request, status, headers, *parts):
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    for part in parts:
        request.wfile.write(part)
        request.wfile.flush()
