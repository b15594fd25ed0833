"""Bodies of requests: spool them as they are read, and make fingerprints of their content."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from oncekey.core.fingerprint import of_json
from oncekey.http.errors import MissingMemberError, TooLargeError
from oncekey.http.keys import pointed

_IN_MEMORY: Final = 1 << 20
_CHUNK: Final = 1 << 16
_BOUNDARY: Final = re.compile(r'boundary="?([^",;]+)"?', re.IGNORECASE)
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Body:
    """The body of a request, kept for the application to read again. A large one is on disk."""

    def __init__(self, limit: int, content_type: str = "") -> None:
        """Start empty. The body may have at most `limit` bytes."""
        self._limit = limit
        self.content_type = content_type
        self._first = b""
        self._file: SpooledTemporaryFile[bytes] | None = None
        self.size = 0

    def feed(self, chunk: bytes) -> None:
        """Add a chunk. Raise TooLargeError if the body is larger than the limit."""
        self.size += len(chunk)
        if self.size > self._limit:
            msg = f"the body is larger than {self._limit} bytes"
            raise TooLargeError(msg)
        if self._file is None:
            if not self._first:  # most bodies come in one piece
                self._first = bytes(chunk)
                return
            self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it
            self._file.write(self._first)
            self._first = b""
        self._file.write(chunk)

    def chunks(self) -> Iterator[bytes]:
        """Yield the whole body in chunks, at least one."""
        if self._file is None:
            yield self._first
            return
        at = 0
        while True:
            self._file.seek(at)  # other readers may have moved the position meanwhile
            chunk = self._file.read(_CHUNK)
            if not chunk:
                return
            at += len(chunk)
            yield chunk

    def whole(self) -> bytes:
        """Return the whole body."""
        return self._first if self._file is None else b"".join(self.chunks())

    def stream(self) -> Any:
        """Return the whole body as a file, positioned at its start."""
        if self._file is None:
            return io.BytesIO(self._first)
        self._file.seek(0)
        return self._file

    @property
    def spooled(self) -> bool:
        """Whether the body came in more than one chunk."""
        return self._file is not None

    def close(self) -> None:
        """Close the file, and remove it from disk."""
        if self._file is not None:
            self._file.close()

    # The content

    @cached_property
    def value(self) -> Any:
        """The body as a JSON value. Raise ValueError if it is not JSON."""
        try:
            return _decode(self.whole())
        except (msgspec.DecodeError, ArithmeticError, RecursionError) as error:
            msg = f"the body is not JSON: {error}"
            raise ValueError(msg) from None

    def members(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raise MissingMemberError if it is none."""
        try:
            value = self.value
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise MissingMemberError("/body", "must be a JSON object")
        return value

    def fingerprint(self) -> str:
        """Return a fingerprint: JSON and forms are compared by value, all else by their bytes."""
        kind = _kind(self.content_type)
        if kind == "application/json":
            if self.size <= _IN_MEMORY:
                try:
                    return of_json(self.whole())
                except ValueError:  # invalid JSON is for the application to refuse
                    return self._raw()
        elif kind == "application/x-www-form-urlencoded" and self.size <= _IN_MEMORY:
            text = self.whole().decode("latin-1")  # keeps different bytes different
            pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
            pairs.sort(key=lambda pair: pair[0])  # stable: equal names stay in order
            return "form:" + sha256(msgspec.msgpack.encode(pairs)).hexdigest()
        elif kind == "multipart/form-data":
            boundary = _BOUNDARY.search(self.content_type)
            if boundary is not None:
                return self._parts(b"--" + boundary[1].encode("latin-1"))
        return self._raw()

    def chosen(self, pointers: Iterable[str]) -> str:
        """Return a fingerprint of only the members at these JSON pointers.

        A body that is not JSON is compared by its bytes.
        """
        found = {}
        for pointer in pointers:
            try:
                found[pointer] = pointed(self.value, pointer)
            except KeyError:
                continue
            except ValueError:
                return self._raw()
        return of_json(_encode(found))

    def digest(self) -> bytes:
        """Return the SHA-256 digest of the body."""
        if self._file is None:
            return sha256(self._first).digest()
        digest = sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.digest()

    def _raw(self) -> str:
        return "raw:" + self.digest().hex()

    def _parts(self, delimiter: bytes) -> str:
        """Return a fingerprint of the parts of a form, without the delimiter.

        Clients choose a new delimiter each time they send the same form.
        """
        digest, part = sha256(), sha256()
        held = b""
        for chunk in self.chunks():
            *whole, held = (held + chunk).split(delimiter)
            for one in whole:
                part.update(one)
                digest.update(part.digest())
                part = sha256()
            # The end of the chunk may have cut a delimiter in two.
            cut = max(0, len(held) - len(delimiter))
            part.update(held[:cut])
            held = held[cut:]
        part.update(held)
        digest.update(part.digest())
        return "parts:" + digest.hexdigest()


@lru_cache(256)
def _kind(content_type: str) -> str:
    """Return the content type without its parameters. All types `+json` count as JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return "application/json" if kind.endswith("+json") else kind
