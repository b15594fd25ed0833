"""Bodies of requests: spool them as they are read, and make fingerprints of their content."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from oncekey.core.fingerprint import of_json
from oncekey.http.errors import MissingMemberError, TooLargeError
from oncekey.http.keys import pointed

try:
    import brotli as _brotli  # type: ignore[import-untyped]  # it brings no types
except ImportError:  # not needed, and used if it is there
    _brotli = None
brotli: Any = _brotli

IN_MEMORY: Final = 1 << 20
"""The size from which on a body is on disk."""
_CHUNK: Final = 1 << 16
_BOUNDARY: Final = re.compile(r';\s*boundary=(?:"([^"]+)"|([^;\s]+))', re.IGNORECASE)
_FIELD: Final = re.compile(rb';\s*name="?([^";\r\n]*)', re.IGNORECASE)
_HEAD: Final = 1 << 10
"""The bytes at the start of a part in which its name is looked for."""
_MOST_PARTS: Final = 10_000
"""The number of parts that may come in another order. With more the order counts."""
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Body:
    """The body of a request, kept for the application to read again. A large one is on disk."""

    # Defaults that most bodies never change: class attributes cost nothing per request.
    size = 0
    _first = b""
    _file: SpooledTemporaryFile[bytes] | None = None
    _fingerprint: str | None = None

    def __init__(self, limit: int, content_type: str = "", encoding: str = "") -> None:
        """Start empty. The body may have at most `limit` bytes."""
        self._limit = limit
        self.content_type = content_type
        self.encoding = encoding
        """The value of `Content-Encoding`."""

    def feed(self, chunk: bytes) -> None:
        """Add a chunk. Raise TooLargeError if the body is larger than the limit."""
        self.size += len(chunk)
        if self.size > self._limit:
            msg = f"the body is larger than {self._limit} bytes"
            raise TooLargeError(msg)
        if not chunk:
            return
        if self._file is None:
            if not self._first:  # most bodies come in one piece
                self._first = bytes(chunk)
                return
            self._file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - `close` closes it
            self._file.write(self._first)
            self._hash = sha256(self._first)
            self._first = b""
        self._file.seek(0, io.SEEK_END)  # somebody may have read it meanwhile
        self._file.write(chunk)
        self._hash.update(chunk)  # as it comes: hashing 100 MiB at once would stop an event loop

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

    def part(self, at: int, size: int) -> bytes:
        """Return at most `size` bytes from the byte `at` on."""
        if self._file is None:
            return self._first[at : at + size]
        self._file.seek(at)
        return self._file.read(size)

    @property
    def spooled(self) -> bool:
        """Whether the body came in more than one chunk."""
        return self._file is not None

    def close(self) -> None:
        """Close the file, and remove it from disk."""
        if self._file is not None:
            self._file.close()
        plain = self.__dict__.get("content", self)
        if plain is not self:
            plain.close()

    # The content

    @cached_property
    def content(self) -> Body:
        """The body without its content encoding.

        It is the body itself if it has no encoding, one that is not known here, or if it is damaged
        or larger than the limit without it: what cannot be read is compared by its bytes.
        """
        decoder = _DECODERS.get(self.encoding.strip().lower())
        if decoder is None:
            return self
        plain = Body(self._limit, self.content_type)
        try:
            for chunk in decoder(self.chunks()):
                plain.feed(chunk)
        except (TooLargeError, ValueError):
            plain.close()
            return self
        return plain

    @cached_property
    def value(self) -> Any:
        """The body as a JSON value. Raise ValueError if it is not JSON."""
        try:
            return _decode(self.content.whole())
        except (msgspec.DecodeError, ArithmeticError, RecursionError) as error:
            msg = f"the body is not JSON: {error}"
            raise ValueError(msg) from None

    def members(self) -> dict[str, Any] | list[Any]:
        """Return the body as a JSON object. Raise MissingMemberError if it is none.

        An array counts as an object without members, as in JavaScript.
        """
        try:
            value = self.value
        except ValueError:
            value = None
        if not isinstance(value, (dict, list)):
            raise MissingMemberError("/body", "must be a JSON object")
        return value

    @property
    def heavy(self) -> bool:
        """Whether its fingerprint takes long: it is large, or encoded."""
        return self.size > IN_MEMORY or bool(self.encoding)

    @property
    def fingerprint(self) -> str:
        """The fingerprint: JSON and forms are compared by value, all else by their bytes."""
        if self._fingerprint is None:  # a cached_property takes a lock, until Python 3.12
            plain = self.content if self.encoding else self
            self._fingerprint = self._of_content() if plain is self else plain.fingerprint
        return self._fingerprint

    def _of_content(self) -> str:
        kind = _kind(self.content_type)
        if kind == "application/json":
            if self.size <= IN_MEMORY:
                try:
                    return of_json(self.whole())
                except ValueError:  # invalid JSON is for the application to refuse
                    return self._raw()
        elif kind == "application/x-www-form-urlencoded" and self.size <= IN_MEMORY:
            text = self.whole().decode("latin-1")  # keeps different bytes different
            pairs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")
            pairs.sort(key=lambda pair: pair[0])  # stable: equal names stay in order
            return "form:" + sha256(msgspec.msgpack.encode(pairs)).hexdigest()
        elif kind.startswith("multipart/"):
            boundary = _BOUNDARY.search(self.content_type)
            if boundary is not None:
                delimiter = b"--" + (boundary[1] or boundary[2]).encode("latin-1")
                return self._parts(delimiter, fields=kind == "multipart/form-data")
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
        return (sha256(self._first) if self._file is None else self._hash).digest()

    def _raw(self) -> str:
        return "raw:" + self.digest().hex()

    def _parts(self, delimiter: bytes, *, fields: bool) -> str:
        """Return a fingerprint of the parts of a body, without the delimiter.

        Clients choose a new delimiter each time they send the same body. The fields of a form may
        come in any order; those of one name stay in theirs.
        """
        digest, part, head, held = sha256(), sha256(), b"", b""
        parts: list[tuple[bytes, bytes]] = []
        for chunk in self.chunks():
            *whole, held = (held + chunk).split(delimiter)
            for one in whole:
                part.update(one)
                digest.update(part.digest())
                if len(parts) <= _MOST_PARTS:
                    field = _FIELD.search((head + one[:_HEAD])[:_HEAD])
                    parts.append((b"" if field is None else field[1], part.digest()))
                part, head = sha256(), b""
            # The end of the chunk may have cut a delimiter in two.
            cut = max(0, len(held) - len(delimiter))
            part.update(held[:cut])
            head = (head + held[:cut])[:_HEAD]
            held = held[cut:]
        part.update(held)
        if fields and len(parts) <= _MOST_PARTS:
            parts[1:] = sorted(parts[1:], key=lambda one: one[0])  # stable
            digest = sha256(b"".join(one for _, one in parts))
        digest.update(part.digest())
        return "parts:" + digest.hexdigest()


def _nothing(_size: int) -> bytes:
    return b""


class LateBody(io.RawIOBase):
    """A file of a body that is read from the client only when the application reads it.

    What was read is fed into the body, so that the request can still be claimed.
    """

    def __init__(
        self, read: Callable[[int], bytes], body: Body, close: Callable[[], object] | None = None
    ) -> None:
        """Read with the function `read`, which returns nothing at the end of the body.

        `close` is called when this file is closed.
        """
        self._read = read
        self._close = close
        self._body = body
        self._at = 0
        self._too_large: TooLargeError | None = None

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into the buffer: first what was read for a claim, then from the client."""
        known = self._too_large is None and self._at < self._body.size
        part = self._body.part(self._at, len(buffer)) if known else self._next(len(buffer))
        self._at += len(part)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Close it, and what it reads from."""
        if not self.closed and self._close is not None:
            self._close()
        super().close()

    def read_rest(self) -> None:
        """Read what the application has not read. Raise TooLargeError if there is too much."""
        while self._too_large is None and self._next(_CHUNK):
            pass
        if self._close is not None:
            self._close()  # nothing is left in it
            self._read, self._close = _nothing, None
        if self._too_large is not None:
            raise self._too_large

    def _next(self, size: int) -> bytes:
        chunk = b"" if self.closed else self._read(size)
        try:
            self._body.feed(chunk)
        except TooLargeError as error:
            self._too_large = error
        return chunk


# Content encodings. Each decoder yields chunks that are never large, whatever a client sends, and
# raises ValueError if the body is damaged.

Decoder = Callable[[Iterable[bytes]], Iterator[bytes]]


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return _inflated(chunks, zlib.MAX_WBITS | 16)


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what was deflated, with the header of zlib, or without it as some clients send it."""
    whole = iter(chunks)
    first = next(whole, b"")
    try:
        zlib.decompressobj().decompress(first[:2])
        bits = zlib.MAX_WBITS
    except zlib.error:
        bits = -zlib.MAX_WBITS
    return _inflated(chain([first], whole), bits)


def _inflated(chunks: Iterable[bytes], bits: int) -> Iterator[bytes]:
    member = zlib.decompressobj(bits)
    try:
        for chunk in chunks:
            left = chunk
            while left:
                if member.eof:  # a file of gzip may have several members
                    member = zlib.decompressobj(bits)
                yield member.decompress(left, _CHUNK)
                left = member.unused_data if member.eof else member.unconsumed_tail
        while not member.eof and (more := member.decompress(b"", _CHUNK)):
            yield more
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not member.eof:
        msg = "the compressed body is cut off"
        raise ValueError(msg)


def _unbrotli(chunks: Iterable[bytes]) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    try:
        for chunk in chunks:
            part = stream.process(chunk, output_buffer_limit=_CHUNK)
            while part:
                yield part
                done = stream.is_finished()
                part = b"" if done else stream.process(b"", output_buffer_limit=_CHUNK)
    except brotli.error as error:
        raise ValueError(str(error)) from None
    if not stream.is_finished():
        msg = "the compressed body is cut off"
        raise ValueError(msg)


_DECODERS: Final[dict[str, Decoder]] = {"gzip": _gunzip, "x-gzip": _gunzip, "deflate": _inflate}
if hasattr(getattr(brotli, "Decompressor", None), "can_accept_more_data"):  # from 1.2 on
    _DECODERS["br"] = _unbrotli


@lru_cache(256)
def _kind(content_type: str) -> str:
    """Return the content type without its parameters. All types `+json` count as JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return "application/json" if kind.endswith("+json") else kind
