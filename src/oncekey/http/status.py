"""Status URLs: a client asks there how its request is doing.

The URL holds a reference. It names the record, and proves with a MAC that it was given out while
this record's attempt was running. If the middleware knows the owner of a request, a reference
works only for the owner. It gives access to nothing but that record.
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
    """The content of a reference. It holds the scope only if the owner cannot be checked."""

    route: str | None
    scope: str | None
    key: str
    proof: str


class Status:
    """The status URLs below one path."""

    def __init__(self, path: str, *, checks: bool) -> None:
        """Use the URLs below `path`. `checks` is whether the middleware knows who asks."""
        if not isinstance(path, str) or not path.startswith("/") or path.endswith("/"):
            msg = f"status_path is a path such as '/requests', but it is {path!r}"
            raise ConfigurationError(msg)
        self._path = f"{path}/"
        self._checks = checks

    def meant(self, method: str, path: str, root: str) -> bool:
        """Return whether the request asks for a status.

        `path` is as the client sees it, and begins with the prefix `root`.
        """
        return method == "GET" and path.startswith(self._below(root))

    def _below(self, root: str) -> str:
        """Return the path as the client sees it. It may have been configured as that already."""
        return self._path if self._path.startswith(f"{root}/") else root + self._path

    def url(self, call: Call, record: Record, route: str | None, root: str) -> str:
        """Return the status URL of the call, valid while this attempt runs and after its end."""
        scope = None if self._checks else call.scope
        pointing = Pointing(route, scope, call.key, _proof(record, call.scope, call.key))
        text = urlsafe_b64encode(msgspec.msgpack.encode(pointing)).decode().rstrip("=")
        return self._below(root) + text

    def read(self, path: str, root: str) -> Pointing | None:
        """Return the reference in the path of a request, or None if there is none."""
        text = path.removeprefix(self._below(root))
        if len(text) > _LONGEST:
            return None
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return msgspec.msgpack.decode(data, type=Pointing)
        except (ValueError, msgspec.MsgspecError):
            return None

    def scope_of(self, pointing: Pointing, principal: str | None) -> str | None:
        """Return the scope of the record, for the user who asks."""
        return request.joined(principal, pointing.route) if self._checks else pointing.scope

    @staticmethod
    def proves(pointing: Pointing, record: Record) -> bool:
        """Return whether the reference was given out for this record."""
        right = _proof(record, record.scope, record.key)
        return hmac.compare_digest(pointing.proof.encode(), right.encode())


def with_url(reply: Reply, url: str) -> Reply:
    """Return the reply with the status URL in its body and its `Location`."""
    content = msgspec.json.decode(reply.body)
    body = msgspec.json.encode({**content, "status_url": url})
    headers = [pair for pair in reply.headers if pair[0] != b"content-length"]
    length = (b"content-length", b"%d" % len(body))
    return Reply(reply.status, [*headers, length, (b"location", url.encode())], body)


def _proof(record: Record, scope: str | None, key: str) -> str:
    """Return a MAC of scope and key, with the record's nonce as its key.

    The nonce is random, and is known only to the store and to the attempt that owns it.
    """
    text = f"{len(scope or '')}:{scope or ''}{key}"
    return hmac.new(record.nonce.encode(), text.encode(), sha256).hexdigest()[:40]
