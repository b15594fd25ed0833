"""A request of WSGI: as the rules see it, as it is read, and as the application sees it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from wsgiref.util import request_uri

from oncekey.http.body import Body
from oncekey.http.reply import Reply
from oncekey.http.request import Headers, Request, nobody
from oncekey.http.wsgi_exchange import Exchange
from oncekey.http.wsgi_response import Environ

PLACE: Final = "oncekey.exchange"
"""Where the exchange is in the environ."""

_CHUNK: Final = 1 << 16
_BARE: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})  # headers whose names have no HTTP_


def path_of(environ: Environ) -> str:
    """The path from the root of the server. PEP 3333 has its bytes as if they were latin-1."""
    path: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    if path.isascii():
        return path
    # Bytes that are no UTF-8 must stay apart: different paths are different requests.
    return path.encode("latin-1").decode("utf-8", "backslashreplace")


def headers_named(names: Iterable[str], environ: Environ) -> Headers:
    """Those of these headers that were sent; the server has joined repeated ones with commas."""
    sent = ((name, environ.get(_variable(name))) for name in names)
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in sent
        if value is not None
    ]


@lru_cache(1024)
def _variable(name: str) -> str:
    return "HTTP_" + name.upper().replace("-", "_")


def _headers(environ: Environ) -> Headers:
    return [
        (_name(variable), value.encode("latin-1"))
        for variable, value in environ.items()
        if variable.startswith("HTTP_") or (variable in _BARE and value)
    ]


@lru_cache(1024)
def _name(variable: str) -> bytes:
    return variable.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1")


def request_of(environ: Environ, path: str) -> Request:
    """The request for the rules. Its user is whom the server, or what is outside, has found."""
    return Request(
        environ["REQUEST_METHOD"],
        path,
        environ.get("QUERY_STRING", "").encode("latin-1"),
        _headers(environ),
        environ,
        (lambda: environ["REMOTE_USER"] or None) if "REMOTE_USER" in environ else nobody,
    )


def url_of(environ: Environ) -> str:
    """As the client wrote it, where the server still knows."""
    raw = environ.get("REQUEST_URI") or environ.get("RAW_URI") or ""
    whole = request_uri(environ)
    if not raw.startswith("/"):
        return whole
    scheme, _, rest = whole.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}{raw}"


def read(environ: Environ, body: Body) -> Reply | None:
    """The body was read; otherwise what is said about it, and nothing has begun."""
    stream, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH") or ""
    chunked = "HTTP_TRANSFER_ENCODING" in environ
    terminated = environ.get("wsgi.input_terminated", False)
    if chunked and not terminated:
        return _plain(411, b"Send a Content-Length: this server cannot tell where the body ends.")
    if length and not (length.isascii() and length.isdecimal()):
        return _plain(400, b"Content-Length is no number.")
    expected = int(length) if length and not chunked else 0
    if chunked or (terminated and not length):
        while chunk := stream.read(_CHUNK):
            body.feed(chunk)
        return None
    while body.size < expected:
        chunk = stream.read(min(_CHUNK, expected - body.size))
        if not chunk:
            return _plain(400, b"The body is shorter than Content-Length says.")  # to nobody
        body.feed(chunk)
    return None


def _plain(status: int, text: bytes) -> Reply:
    return Reply(
        status, [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))], text
    )


def inner(environ: Environ, exchange: Exchange, body: Body) -> Environ:
    """The request as the application sees it: its response is whole, plain and through us."""
    seen = {
        **environ,
        "wsgi.input": exchange.stream,
        "wsgi.input_terminated": True,
        "HTTP_ACCEPT_ENCODING": "identity",
        PLACE: exchange,
    }
    if "HTTP_TRANSFER_ENCODING" in seen or body.size:
        seen["CONTENT_LENGTH"] = str(body.size)
    seen.pop("HTTP_TRANSFER_ENCODING", None)
    seen.pop("wsgi.file_wrapper", None)  # it would go past us
    return seen
