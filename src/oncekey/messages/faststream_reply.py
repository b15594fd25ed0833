"""What a handler of FastStream returns, as bytes and back: values, responses, and no reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from faststream.response import Response

from oncekey.core.codec import PLAIN, Codec, NotKeepableError, UnreadableBytesError

_MARK: Final = "oncekey.faststream"
_IN_BYTES: Final = _MARK.encode()


class Acked:
    """The handler raised AckMessage: it is done, and nothing is published."""


ACKED: Final = Acked()


class ReplyCodec(Codec):
    """Values as the annotation says. A `Response` is kept with its headers, whatever it says."""

    def encode(self, value: object) -> bytes:
        """Bytes that decode to an equal value, or NotKeepableError."""
        if isinstance(value, Acked):
            return PLAIN.encode({_MARK: ""})
        if isinstance(value, Response):
            return PLAIN.encode({_MARK: _name(type(value)), "facts": _facts(value)})
        return super().encode(value)

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - as the annotation says
        """A value of its own for every caller; UnreadableBytesError when they do not fit."""
        told = PLAIN.decode(data) if _IN_BYTES in data else None
        if not isinstance(told, dict) or _MARK not in told:
            return super().decode(data)
        name = told[_MARK]
        if not name:
            return ACKED
        for kind in _kinds(Response):
            if _name(kind) == name:
                made = _empty(kind)
                vars(made).update(told["facts"])
                return made
        msg = f"FastStream has no {name} here"
        raise UnreadableBytesError(msg)


def _facts(response: Response) -> dict[str, Any]:
    """What the response says; what it leaves as it was may be anything."""
    usual = vars(_empty(type(response)))
    return {
        name: value
        for name, value in vars(response).items()
        if name not in usual or value != usual[name]
    }


def _empty(kind: type[Response]) -> Response:
    try:
        return kind(None)
    except TypeError:
        msg = f"a {kind.__name__} needs more than a body"
        raise NotKeepableError(msg) from None


def _kinds(kind: type[Response]) -> Iterator[type[Response]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


def _name(kind: type[Response]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
