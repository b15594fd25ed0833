"""A small HTTP server for clients of streams, which answers as a test wants."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<!doctype html><link rel=icon href=data:,><title>a</title>"


class Site:
    """Answers GET requests in threads. Other addresses than those of a stream are an empty page."""

    def __init__(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                streams = self.path.startswith(outer.stream)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream" if streams else "text/html")
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()
                if streams:
                    outer.answer(self)
                else:
                    self.wfile.write(PAGE)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    stream = "/stream"
    """What the addresses of streams begin with."""

    def answer(self, request):
        """Write a stream, after its headers."""
        raise NotImplementedError

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
