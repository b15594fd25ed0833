"""Bodies of requests: spooled as they are read, and told apart by what they mean."""

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
    """What a client sent, kept for the application to read again; a large one is on disk."""

    def __init__(self, limit: int, content_type: str = "") -> None:
        """Empty so far, and never more than `limit` bytes."""
        self._limit = limit
        self.content_type = content_type
        self._first = b""
        self._file: SpooledTemporaryFile[bytes] | None = None
        self.size = 0

    def feed(self, chunk: bytes) -> None:
        """Some more of it; TooLargeError past the limit."""
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
        """All of it, from the start, in pieces; at least one."""
        if self._file is None:
            yield self._first
            return
        at = 0
        while True:
            self._file.seek(at)  # others may read elsewhere meanwhile
            chunk = self._file.read(_CHUNK)
            if not chunk:
                return
            at += len(chunk)
            yield chunk

    def whole(self) -> bytes:
        """All of it at once."""
        return self._first if self._file is None else b"".join(self.chunks())

    def stream(self) -> Any:
        """All of it, as a file that stands at its start."""
        if self._file is None:
            return io.BytesIO(self._first)
        self._file.seek(0)
        return self._file

    @property
    def spooled(self) -> bool:
        """Whether it came in more than one piece."""
        return self._file is not None

    def close(self) -> None:
        """What was on disk is gone."""
        if self._file is not None:
            self._file.close()

    # What it means

    @cached_property
    def value(self) -> Any:
        """The JSON value it is; ValueError when it is none."""
        try:
            return _decode(self.whole())
        except (msgspec.DecodeError, ArithmeticError, RecursionError) as error:
            msg = f"the body is not JSON: {error}"
            raise ValueError(msg) from None

    def members(self) -> dict[str, Any]:
        """The JSON object it is, or MissingMemberError."""
        try:
            value = self.value
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise MissingMemberError("/body", "must be a JSON object")
        return value

    def fingerprint(self) -> str:
        """What makes it the same body: JSON and forms by value, everything else byte by byte."""
        kind = _kind(self.content_type)
        if kind == "application/json":
            if self.size <= _IN_MEMORY:
                try:
                    return of_json(self.whole())
                except ValueError:  # the application will say what it thinks of it
                    return self._raw()
        elif kind == "application/x-www-form-urlencoded" and self.size <= _IN_MEMORY:
            text = self.whole().decode("latin-1")  # byte by byte: no two become one
            pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
            pairs.sort(key=lambda pair: pair[0])  # stable: equal names stay in order
            return "form:" + sha256(msgspec.msgpack.encode(pairs)).hexdigest()
        elif kind == "multipart/form-data":
            boundary = _BOUNDARY.search(self.content_type)
            if boundary is not None:
                return self._parts(b"--" + boundary[1].encode("latin-1"))
        return self._raw()

    def chosen(self, pointers: Iterable[str]) -> str:
        """What makes it the same body where only some members of its JSON count."""
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
        """Which bytes they are."""
        if self._file is None:
            return sha256(self._first).digest()
        digest = sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.digest()

    def _raw(self) -> str:
        return "raw:" + self.digest().hex()

    def _parts(self, delimiter: bytes) -> str:
        """Without the delimiter, which clients choose anew each time they send the same."""
        digest, part = sha256(), sha256()
        held = b""
        for chunk in self.chunks():
            *whole, held = (held + chunk).split(delimiter)
            for one in whole:
                part.update(one)
                digest.update(part.digest())
                part = sha256()
            # A delimiter may have been cut in two by the end of the chunk.
            cut = max(0, len(held) - len(delimiter))
            part.update(held[:cut])
            held = held[cut:]
        part.update(held)
        digest.update(part.digest())
        return "parts:" + digest.hexdigest()


@lru_cache(256)
def _kind(content_type: str) -> str:
    """What a content type says, without its parameters; all kinds of JSON are one."""
    kind = content_type.partition(";")[0].strip().lower()
    return "application/json" if kind.endswith("+json") else kind
