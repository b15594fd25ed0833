"""Where a client can ask how its request is doing: URLs that only it can know and read.

A reference names the record and proves knowledge of the attempt that was running when it was given
out. It is checked against whoever asks, and opens nothing else.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.errors import ConfigurationError
from oncekey.http import request
from oncekey.http.response import Reply

_LONGEST: Final = 2048


class Pointing(Struct, array_like=True):
    """What a reference holds. The scope is only there where nobody who asks could be checked."""

    route: str | None
    scope: str | None
    key: str
    proof: str


class Status:
    """The status URLs below one path."""

    def __init__(self, path: str, *, checks: bool) -> None:
        """`checks` says whether the middleware knows who asks."""
        if not isinstance(path, str) or not path.startswith("/") or path.endswith("/"):
            msg = f"status_path is a path such as '/requests', but it is {path!r}"
            raise ConfigurationError(msg)
        self._path = f"{path}/"
        self._checks = checks

    def meant(self, method: str, path: str) -> bool:
        """Whether the request asks for a status."""
        return method == "GET" and path.startswith(self._path)

    def url(self, call: Call, record: Record, route: str | None) -> str:
        """Where to ask how the call is doing, while this attempt runs and after it has ended."""
        scope = None if self._checks else call.scope
        pointing = Pointing(route, scope, call.key, _proof(record, call.scope, call.key))
        text = urlsafe_b64encode(msgspec.msgpack.encode(pointing)).decode().rstrip("=")
        return self._path + text

    def read(self, path: str) -> Pointing | None:
        """What the path of a request refers to; None when it refers to nothing."""
        text = path.removeprefix(self._path)
        if len(text) > _LONGEST:
            return None
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return msgspec.msgpack.decode(data, type=Pointing)
        except (ValueError, msgspec.MsgspecError):
            return None

    def scope_of(self, pointing: Pointing, principal: str | None) -> str | None:
        """The scope that whoever asks may look into."""
        return request.joined(principal, pointing.route) if self._checks else pointing.scope

    @staticmethod
    def proves(pointing: Pointing, record: Record) -> bool:
        """Whether the reference was given out for this very record."""
        right = _proof(record, record.scope, record.key)
        return hmac.compare_digest(pointing.proof.encode(), right.encode())


def with_url(reply: Reply, url: str) -> Reply:
    """The reply, telling where to ask."""
    content = msgspec.json.decode(reply.body)
    body = msgspec.json.encode({**content, "status_url": url})
    headers = [pair for pair in reply.headers if pair[0] != b"content-length"]
    length = (b"content-length", b"%d" % len(body))
    return Reply(reply.status, [*headers, length, (b"location", url.encode())], body)


def _proof(record: Record, scope: str | None, key: str) -> str:
    """The nonce is random and leaves neither the store nor the attempt that owns it."""
    text = f"{len(scope or '')}:{scope or ''}{key}"
    return hmac.new(record.nonce.encode(), text.encode(), sha256).hexdigest()[:40]
