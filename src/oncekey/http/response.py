"""Responses as they are kept and replayed, and the replies that the middleware makes itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncekey.core.codec import Codec, NotKeepableError, UnreadableBytesError
from oncekey.http.request import Headers

REPLAYED: Final = (b"idempotent-replayed", b"true")
UNPROTECTED: Final = b"idempotent-unprotected"
"""The header of a response whose request had a key that did not protect it. Its value says why."""

# These headers belong to one connection, one moment or one client, and are wrong in a replay.
NEVER_REPLAYED: Final = frozenset(
    {
        *(b"set-cookie", b"set-cookie2", b"date", b"age", b"server", b"www-authenticate"),
        *(b"authentication-info", b"authorization", b"x-csrf-token"),
        *(b"clear-site-data", b"alt-svc"),
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"idempotency-key", b"idempotent-replayed", UNPROTECTED),  # a replay has its own
    }
)

# Most responses have only these and a content type. They are kept, in lower case, as they are.
ORDINARY: Final = frozenset(
    {
        *(b"cache-control", b"content-disposition", b"content-encoding", b"content-language"),
        *(b"content-length", b"etag", b"expires", b"last-modified", b"link", b"location"),
        *(b"referrer-policy", b"retry-after", b"strict-transport-security", b"vary"),
        *(b"x-content-type-options", b"x-frame-options", b"x-process-time", b"x-request-id"),
    }
)

# Headers that begin with "access-control-" are of one client, too: those between these two.
_CORS: Final = b"access-control-"
_AFTER_CORS: Final = b"access-control."
_ENDLESS: Final = (b"text/event-stream", b"application/x-ndjson", b"multipart/x-mixed-replace")


class Reply(Struct, array_like=True):
    """A whole response. The names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes = b""

    @classmethod
    def json(cls, status: int, value: object) -> Reply:
        """Return a response with the value as JSON."""
        body = msgspec.json.encode(value)
        length = (b"content-length", b"%d" % len(body))
        return cls(status, [(b"content-type", b"application/json"), length], body)


class Unkept(Struct):
    """A response that cannot be kept, and why."""

    why: str


class ReplyCodec(Codec):
    """The codec of kept responses. Their bodies are kept byte by byte."""

    def __init__(self) -> None:
        """Encode replies. There is nothing to configure."""
        super().__init__(Reply)

    def encode(self, value: object) -> bytes:
        """Return the bytes of a reply, or the bytes that a middleware has packed before.

        Raise NotKeepableError for anything else.
        """
        if isinstance(value, bytes):
            return value
        if isinstance(value, Reply):
            return packed(value.status, value.headers, value.body)
        raise NotKeepableError(value.why if isinstance(value, Unkept) else "it is no response")


REPLIES: Final = ReplyCodec()
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Reply).decode


def kept_headers(headers: Headers, never: frozenset[bytes] = NEVER_REPLAYED) -> Headers:
    """Return the headers that are kept, in their order, repeated ones included."""
    return [
        pair
        for pair in headers
        if pair[0] not in never and not _CORS <= pair[0] < _AFTER_CORS  # startswith costs more
    ]


def endless(headers: Headers) -> bool:
    """Return whether a response with these headers is a stream that may never end."""
    for name, value in headers:  # noqa: SIM110 - it costs less
        if name == b"content-type" and is_endless(value):
            return True
    return False


def says_when(status: int, headers: Headers) -> bool:
    """Return whether this is a refusal that says when to ask again: the answer may change."""
    return 400 <= status < 500 and any(name == b"retry-after" for name, _ in headers)  # noqa: PLR2004 - as known


@lru_cache(256)
def is_endless(content_type: bytes) -> bool:
    """Return whether a response of this type is a stream that may never end."""
    return content_type.partition(b";")[0].strip().lower() in _ENDLESS


def packed(
    status: int, headers: Headers, body: bytes, never: frozenset[bytes] | None = NEVER_REPLAYED
) -> bytes:
    """Return the bytes of a response as they are stored, without the headers `never`.

    With None all of these headers are known to be kept.
    """
    kept = headers if never is None else kept_headers(headers, never)
    return _encode(Reply(status, kept, body))


def unpacked(data: bytes) -> Reply:
    """Return the stored response. Raise UnreadableBytesError if the bytes are none."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableBytesError(str(error)) from None


# Replies of the middleware itself


class Words(Struct, frozen=True, kw_only=True):
    """The reply for one situation.

    Without a `body` it is an RFC 9457 problem. Texts in a body may hold `{detail}` and `{field}`.
    A text that is just `{retry_after}` becomes the number of seconds.
    """

    status: int
    title: str = ""
    body: Mapping[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()


def say(
    situation: str,
    words: Words,
    *,
    detail: str,
    field: str = "",
    retry_after: float | None = None,
    docs_url: str | None = None,
    instance: str = "",
) -> Reply:
    """Return the reply for a situation, in the words of a profile.

    `instance` is the URI of the record, which a problem carries so that it can be looked up.
    """
    seconds = None if retry_after is None else max(1, math.ceil(retry_after))
    headers = [(name.lower().encode(), value.encode()) for name, value in words.headers]
    if seconds is not None:
        headers.append((b"retry-after", b"%d" % seconds))
    if words.body is None:
        content: Any = {
            "type": problem_type(situation, docs_url),
            "title": words.title,
            "status": words.status,
            "detail": detail,
            **({"instance": instance} if instance else {}),
            **({"retry_after": seconds} if seconds is not None else {}),
        }
        kind = b"application/problem+json"
        headers.append((b"content-language", b"en"))
    else:
        content = _filled(words.body, {"detail": detail, "field": field, "retry_after": seconds})
        kind = b"application/json"
    if docs_url is not None:
        headers.append((b"link", f'<{docs_url}>; rel="describedby"'.encode()))
    body = msgspec.json.encode(content)
    return Reply(
        words.status,
        [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *headers],
        body,
    )


def problem_type(situation: str, docs_url: str | None) -> str:
    """Return the type of a problem: its place below `docs_url`, or a URN where there is none.

    The situation is an anchor on the page, or is appended to an address that ends with `/`, `#`
    or `=`.
    """
    if docs_url is None:
        return f"urn:oncekey:{situation}"
    return f"{docs_url}{'' if docs_url.endswith(('/', '#', '=')) else '#'}{situation}"


def _filled(template: Any, facts: dict[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {name: _filled(value, facts) for name, value in template.items()}
    if template == "{retry_after}":
        return facts["retry_after"]
    if isinstance(template, str):
        for name in ("detail", "field"):
            template = template.replace(f"{{{name}}}", facts[name])
    return template
