"""Encode results and exceptions as bytes, and decode them. Pickle is never used.

A result is kept only if it decodes to an equal value of the same type. `Codec.encode` tries this
before anything is stored, so that a duplicate never gets another value than the first caller.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from oncekey.errors import OncekeyError


class NotKeepableError(OncekeyError):
    """The value does not survive encoding and decoding; the message says why."""


class UnreadableBytesError(OncekeyError):
    """The stored bytes cannot be decoded; the message says why."""


def _to_plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic, without importing it
    if dump is not None:
        return dump(mode="python")
    msg = f"{type(value).__name__} cannot be encoded"
    raise NotImplementedError(msg)


def _from_plain(kind: type, value: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    msg = f"{kind.__name__} cannot be decoded"
    raise NotImplementedError(msg)


_encode = msgspec.msgpack.Encoder(enc_hook=_to_plain).encode
_untyped = msgspec.msgpack.Decoder()


class Codec:
    """Encode and decode the results of one function, by its return annotation."""

    def __init__(self, annotation: object = inspect.Parameter.empty, unusable: str = "") -> None:
        """Build the decoder. Without a usable annotation only plain values can be kept.

        `unusable` says why there is none, if the function has one that cannot be read.
        """
        self.annotation = annotation
        self.unusable = unusable
        self._decoder: msgspec.msgpack.Decoder[Any] = _untyped
        if annotation not in (inspect.Parameter.empty, Any, object):
            try:
                self._decoder = msgspec.msgpack.Decoder(annotation, dec_hook=_from_plain)
            except Exception as error:  # noqa: BLE001 - annotations are arbitrary code
                self.unusable = str(error)
        self.typed = self._decoder is not _untyped

    @property
    def advice(self) -> str:
        """What to do if a value of the function cannot be kept. Empty if nothing is known."""
        if self.unusable:
            return f"the return annotation cannot be used: {self.unusable}"
        return "" if self.typed else "annotate what the function returns so that it can be"

    def encode(self, value: object) -> bytes:
        """Return bytes that decode to an equal value of the same type.

        Raise NotKeepableError if there are none.
        """
        try:
            data = _encode(value)
            back = self._decoder.decode(data)
            alike = _alike(value, back)
        except Exception:  # noqa: BLE001 - user classes raise whatever they like
            data, back, alike = self._encode_again(value)
        if not alike:
            msg = f"{type(value).__name__} would come back as {type(back).__name__}"
            if type(value) is type(back):
                msg = f"a {type(value).__name__} would not come back equal"
            raise NotKeepableError(msg)
        return data

    def _encode_again(self, value: object) -> tuple[bytes, object, bool]:
        """Encode after an error: a signal handler may have raised it, whatever the value is."""
        try:
            data = _encode(value)
            back = self._decoder.decode(data)
            return data, back, _alike(value, back)
        except Exception as error:  # noqa: BLE001 - user classes raise whatever they like
            raise NotKeepableError(str(error)) from None

    def decode(self, data: bytes) -> Any:
        """Return a new value, decoded from `data`. Raise UnreadableBytesError if that fails."""
        try:
            return self._decoder.decode(data)
        except Exception as error:  # noqa: BLE001 - user classes raise whatever they like
            raise UnreadableBytesError(str(error)) from None


PLAIN: Final = Codec()
"""The codec without an annotation: None, bool, int, float, str, bytes, list and dict of them."""


def codec_of(function: Callable[..., object]) -> Codec:
    """Return the codec for the return annotation of the function."""
    target = inspect.unwrap(function)
    target = getattr(target, "func", target)  # functools.partial
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except Exception as error:  # noqa: BLE001 - annotations are arbitrary code: plain values only
        return Codec(unusable=str(error))
    return Codec(_awaited(hints["return"])) if "return" in hints else PLAIN


def _awaited(annotation: Any) -> Any:
    """Return what awaiting a value of this type gives, or the type if it cannot be awaited."""
    kind = typing.get_origin(annotation)
    if isinstance(kind, type) and issubclass(kind, Awaitable):
        return typing.get_args(annotation)[-1]  # Awaitable[T], Coroutine[Any, Any, T], Future[T]
    return annotation


_SIMPLE: Final = frozenset({type(None), bool, int, str, bytes})
"""The types whose equal values are alike. A float may be no number, which equals nothing."""


def _alike(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if type(one) in _SIMPLE:
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and _all_alike(_flat(one), _flat(other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and _all_alike(one, other)
    if one == other:
        return True
    incomparable = type(one).__eq__ is object.__eq__ or one != one  # noqa: PLR0124 - not a number
    return incomparable and _encode(one) == _encode(other)


def _flat(mapping: dict[object, object]) -> Iterator[object]:
    for key, value in mapping.items():
        yield key
        yield value


def _all_alike(ones: Iterable[object], others: Iterable[object]) -> bool:
    return all(map(_alike, ones, others))


# Exceptions


class _Failure(msgspec.Struct, array_like=True):
    """A stored exception. `state` is None where the exception cannot be rebuilt from it.

    A group has the exceptions inside of it instead of a state.
    """

    module: str
    name: str
    message: str
    state: bytes | None
    inside: list[bytes] | None = None


_encode_failure = msgspec.msgpack.Encoder().encode
_failure = msgspec.msgpack.Decoder(_Failure)
LARGEST_ERROR: Final = 1024 * 1024
"""The size in bytes above which only the beginning of an exception's message is kept."""
_BEGINNING: Final = 4096


def encode_error(error: BaseException) -> bytes:
    """Encode the exception: the name of its type, its message and, where possible, its state."""
    data = _encode_failure(_failure_of(error))
    if len(data) > LARGEST_ERROR:  # it may quote the whole answer of a server
        kind, words = type(error), _words(error)[:_BEGINNING] + " ..."
        data = _encode_failure(_Failure(kind.__module__, kind.__qualname__, words, None))
    return data


def _failure_of(error: BaseException) -> _Failure:
    kind = type(error)
    if isinstance(error, BaseExceptionGroup):
        inside = [encode_error(one) for one in error.exceptions]
        words = _encodable(error.message)
        return _Failure(kind.__module__, kind.__qualname__, words, None, inside)
    state: bytes | None
    try:
        state = PLAIN.encode([list(_base(kind).__reduce__(error)[1]), _own(error)])
        if _words(_rebuilt(kind, state)) != _words(error):
            state = None
    except Exception:  # noqa: BLE001 - user classes raise whatever they like
        state = None
    return _Failure(kind.__module__, kind.__qualname__, _words(error), state)


def decode_error(
    data: bytes, known: tuple[type[BaseException], ...]
) -> tuple[BaseException | None, str, str]:
    """Return the exception, the name of its type and its message.

    The exception is None if its type is not among the known ones or their subclasses, or if it
    cannot be rebuilt. It is rebuilt from its state and not by its constructor, which may need other
    arguments. Raise UnreadableBytesError if the bytes are not an encoded exception.
    """
    try:
        failure = _failure.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise UnreadableBytesError(str(cause)) from None
    if failure.inside:
        return _group(failure, failure.inside, known), failure.name, failure.message
    kind = _find(failure, known)
    if kind is None or failure.state is None:
        return None, failure.name, failure.message
    try:
        error = _rebuilt(kind, failure.state)
    except msgspec.MsgspecError as cause:
        raise UnreadableBytesError(str(cause)) from None
    except Exception:  # noqa: BLE001 - the type has changed since: its words are left
        error = None
    return error, failure.name, failure.message


def _group(
    failure: _Failure, inside: list[bytes], known: tuple[type[BaseException], ...]
) -> BaseException | None:
    """Return the group, or None if one of its exceptions cannot be rebuilt."""
    kind = _find(failure, (ExceptionGroup, *known))
    errors = [decode_error(one, known)[0] for one in inside]
    if kind is None or None in errors:
        return None
    try:
        return kind(failure.message, errors)
    except Exception:  # noqa: BLE001 - a user's group may need other arguments
        return None


_state = msgspec.msgpack.Decoder(tuple[list[Any], dict[str, Any]])


def _rebuilt(kind: type[BaseException], state: bytes) -> BaseException:
    """Rebuild the exception from its state, without the constructor of a user's class."""
    arguments, own = _state.decode(state)
    error = kind.__new__(kind, *arguments)
    _base(kind).__init__(error, *arguments)
    error.__dict__.update(own)
    return error


def _base(kind: type[BaseException]) -> Any:
    """Return the built-in exception that the type derives from."""
    return next(one for one in kind.__mro__ if one.__module__ == "builtins")


def error_words(data: bytes) -> str:
    """Return the error for people: `CardDeclined: no funds`. Empty if it cannot be decoded."""
    try:
        failure = _failure.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return f"{failure.name}: {failure.message}"


def _own(error: BaseException) -> dict[str, object]:
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


def _words(error: BaseException) -> str:
    try:
        return _encodable(str(error))
    except Exception:  # noqa: BLE001 - a broken __str__ must not lose the failure itself
        return ""


def _encodable(words: str) -> str:
    """Write out half characters, as in the name of a file that is not UTF-8."""
    return words.encode(errors="backslashreplace").decode()


def _find(failure: _Failure, known: tuple[type[BaseException], ...]) -> type[BaseException] | None:
    """Return the type among the known ones and their subclasses, or None."""
    seen = list(known)
    for kind in seen:
        if (kind.__module__, kind.__qualname__) == (failure.module, failure.name):
            return kind
        seen.extend(sub for sub in kind.__subclasses__() if sub not in seen)
    return None
