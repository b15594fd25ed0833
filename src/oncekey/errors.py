"""All errors that a user can meet.

    OncekeyError
     ├── ConfigurationError      the code or the settings are wrong; nothing was claimed
     ├── InvalidKeyError         the key is empty, too long or not printable; nothing was claimed
     ├── KeyReusedError          the key belongs to a call with other arguments
     ├── InProgressError         another attempt is running it now
     ├── OutcomeUnknownError     an attempt ended without a definite outcome; a human decides
     ├── LeaseLostError          this attempt was taken over before it could be recorded
     ├── RememberedError         the first call failed, and its failure was kept
     ├── ResultNotKeptError      it was done, but its result was not kept
     ├── UnreadableError         what is stored cannot be read by this version or as this type
     ├── StoreError              the store did not answer, or refused
     │    └── StoreAccessError   it does not let this program in; a ConfigurationError too
     └── NotRecordedError        it was done, but the store could not be told in time

Details are attributes of the errors. `status_hint` is the HTTP status a server may answer with.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OncekeyError(Exception):
    """Base of all errors of this library."""

    status_hint: ClassVar[int] = 500

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the error with its attributes."""
        return _again, (type(self), self.args, dict(self.__dict__))


def _again(kind: type[OncekeyError], args: tuple[Any, ...], facts: dict[str, Any]) -> OncekeyError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class ConfigurationError(OncekeyError):
    """The code or the settings are wrong; nothing was claimed and nothing ran."""


class InvalidKeyError(OncekeyError):
    """The key cannot be used; nothing was claimed and nothing ran."""

    status_hint = 400


class _KeyedError(OncekeyError):
    """Base of errors about one key.

    The arguments have defaults, because result back ends rebuild errors from the message alone.
    """

    def __init__(self, message: str, *, key: str = "", scope: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.scope = scope


class KeyReusedError(_KeyedError):
    """The key belongs to a call with other arguments; nothing ran."""

    status_hint = 422


class InProgressError(_KeyedError):
    """Another attempt holds the key; ask again after `retry_after` seconds.

    `lease_left` is the number of seconds that its lease still lasted, None if that is not known.
    """

    status_hint = 409

    def __init__(
        self,
        message: str,
        *,
        key: str = "",
        scope: str | None = None,
        retry_after: float = 1.0,
        lease_left: float | None = None,
    ) -> None:
        super().__init__(message, key=key, scope=scope)
        self.retry_after = retry_after
        self.lease_left = lease_left


class OutcomeUnknownError(_KeyedError):
    """An attempt ended without a definite outcome; the key is held until it is resolved."""

    status_hint = 409


class LeaseLostError(_KeyedError):
    """The lease ran out and another attempt owns the key; this one was not recorded."""

    status_hint = 409


class RememberedError(_KeyedError):
    """The first call failed with `type_name`, and its failure was kept."""

    def __init__(
        self, message: str, *, key: str = "", scope: str | None = None, type_name: str = ""
    ) -> None:
        super().__init__(f"{type_name}: {message}", key=key, scope=scope)
        self.type_name = type_name
        self.message = message


class ResultNotKeptError(_KeyedError):
    """The operation was completed, but its result was not kept; it does not run again."""

    status_hint = 409


class UnreadableError(_KeyedError):
    """What is stored under the key cannot be read here; it does not run again."""


class StoreError(OncekeyError):
    """The store did not do what was asked.

    `happened` is False when the request certainly changed nothing, and None when that is unknown.
    `unreachable` says that the store was not reached at all, or did not answer in time.
    """

    status_hint = 503

    def __init__(
        self, message: str, *, happened: bool | None = None, unreachable: bool = False
    ) -> None:
        super().__init__(message)
        self.happened = happened
        self.unreachable = unreachable


class StoreAccessError(StoreError, ConfigurationError):
    """The store does not let this program in: a password, a permission or a path is wrong.

    It is trouble of the store, since passwords and permissions change while programs run, and it is
    an error of the settings, which somebody has to correct.
    """


def doubted(error: StoreError) -> StoreError:
    """Return the error of the last try, when the outcome of an earlier one is unknown."""
    if error.happened is None:
        return error
    msg = f"one try may have reached the store, and the last one did not: {error}"
    return StoreError(msg, happened=None, unreachable=error.unreachable)


class NotRecordedError(_KeyedError):
    """The operation ran and returned `result`, but the store could not be told in time.

    Recording goes on in the background. Ask again with the same key, not with a new one.
    """

    status_hint = 503

    def __init__(
        self, message: str, *, key: str = "", scope: str | None = None, result: object = None
    ) -> None:
        super().__init__(message, key=key, scope=scope)
        self.result = result
