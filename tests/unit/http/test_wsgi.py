"""What the WSGI middleware does with the server's objects."""

import io

from oncekey import Once
from oncekey.http.wsgi import IdempotencyMiddleware


class Unreachable(io.RawIOBase):
    """A body that nobody may read."""

    def read(self, size=-1):
        raise AssertionError


def test_nothing_is_read_before_a_handler_claims():
    def stranger(environ, start_response):
        start_response("401 Unauthorized", [])
        return [b"who are you?"]

    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "CONTENT_LENGTH": "7",
        "HTTP_IDEMPOTENCY_KEY": "k",
        "wsgi.input": Unreachable(),
    }
    said = []
    app = IdempotencyMiddleware(stranger, Once("memory://"), claim="handler")
    parts = app(environ, lambda status, _headers: said.append(status))
    assert (said, list(parts)) == (["401 Unauthorized"], [b"who are you?"])
