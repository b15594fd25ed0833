"""What may be done to a record by hand, for both colours of `admin.py`."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from oncekey.core.call import Identity
from oncekey.core.codec import PLAIN, Codec, NotKeepableError, encode_error
from oncekey.core.key import checked_key, checked_scope
from oncekey.core.record import Record
from oncekey.core.requests import Resolve
from oncekey.errors import ConfigurationError, InProgressError, OutcomeUnknownError

PURGE_BATCH: Final = 500
MISSING: Final[Any] = object()


def place(scope: str | None, key: str) -> Identity:
    """The identity that a person named, if it can be one."""
    return checked_scope(scope), checked_key(key)


def forgettable(record: Record, *, force: bool) -> None:
    """Nothing, unless the record is alive and nobody insists."""
    if force:
        return
    if record.status == "running":
        msg = f"{record.key!r} is running; forget it with force=True, and its attempt is lost"
        raise InProgressError(msg, key=record.key, scope=record.scope, retry_after=1.0)
    if record.status == "held":
        msg = f"{record.key!r} is held; resolve it, or forget it with force=True"
        raise OutcomeUnknownError(msg, key=record.key, scope=record.scope)


class Resolution(Struct):
    """How a held record ends."""

    status: Literal["completed", "failed", "released"]
    result: bytes | None
    error: bytes | None
    ttl: int

    def request(self, record: Record) -> Resolve:
        """The request for the record as it was read."""
        return Resolve(
            record.scope,
            record.key,
            token=record.token,
            status=self.status,
            result=self.result,
            error=self.error,
            ttl=self.ttl,
        )


def resolution(*, result: object, error: BaseException | None, retry: bool, ttl: int) -> Resolution:
    """What a person said: exactly one of a result, an error and a retry."""
    said = [result is not MISSING, error is not None, retry]
    if sum(said) != 1:
        msg = "resolve needs exactly one of result=..., error=... and retry=True"
        raise ConfigurationError(msg)
    if retry:
        return Resolution("released", None, None, ttl)
    if error is not None:
        if not isinstance(error, BaseException):
            msg = f"error must be an exception, but it is {error!r}"
            raise ConfigurationError(msg)
        return Resolution("failed", None, encode_error(error), ttl)
    return Resolution("completed", _encode(result), None, ttl)


def _encode(result: object) -> bytes:
    try:
        return PLAIN.encode(result)
    except NotKeepableError:
        pass
    try:
        return Codec(type(result)).encode(result)
    except NotKeepableError as error:
        msg = f"the result cannot be kept: {error}"
        raise ConfigurationError(msg) from None
