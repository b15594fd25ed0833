"""A server that answers each request for `/job` as the test has written down, and keeps a list."""

import contextlib
import json
import threading
from dataclasses import dataclass, field
from hashlib import sha256
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


def tagged(job):
    """What stands for a job in an id of several."""
    return sha256(job.encode()).hexdigest()[:8]


def places(at, first):
    """The id of a client that is at these offsets, by job, after an event of the first."""
    jobs = [first, *(job for job in at if job != first)]
    return "~".join(f"{tagged(job)}.{job}{job}.{at[job]}.0c" for job in jobs)


def event_of(job, at, **body):
    """The event of a job at its offset, for a client that is at these."""
    body = {"job_id": job, "stage": "work", "seq": at[job], "data": None, **body}
    return f"data: {json.dumps(body)}\nid: {places(at, job)}\n\n".encode()


def resync_of(job, reason, name):
    data = json.dumps({"reason": reason, "job_id": job})
    return f"event: resync\ndata: {data}\nid: {name}\n\n".encode()


def refused(job, reason):
    data = json.dumps({"job_id": job, "reason": reason})
    return f"event: refused\ndata: {data}\n\n".encode()


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
        self.jobs = []
        """The jobs that the last request named."""
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
            query = parse_qs(url.query)
            self.jobs = query.pop("job", [])
            self.asked.append({name: value[0] for name, value in query.items()})
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
