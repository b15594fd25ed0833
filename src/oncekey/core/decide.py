"""Decide what a caller does next, from the store's answer and the terms of the call.

Everything here is pure; the engine carries out what these functions return.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from msgspec import Struct

from oncekey.core.call import Call
from oncekey.core.codec import NotKeepableError, UnreadableBytesError, decode_error
from oncekey.core.fingerprint import differ
from oncekey.core.network_errors import of_a_client
from oncekey.core.record import Record
from oncekey.core.requests import Answer, Busy, Granted, Held, Mismatch, Replay
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    KeyReusedError,
    LeaseLostError,
    OncekeyError,
    OutcomeUnknownError,
    RememberedError,
    ResultNotKeptError,
    UnreadableError,
)
from oncekey.policy import SECOND, Terms

_FIRST_POLL: Final = 0.002
_SLOWEST_POLL: Final = 0.1
WORTH_WATCHING: Final = _SLOWEST_POLL
"""Seconds. A caller that would pause this long lets the store wake it, if the store can."""
WATCHED_FOR: Final = 1.0
"""Seconds to watch for a wake-up before asking again, because a wake-up can be missed."""


class Proceed(Struct):
    """Run the code: the call owns the record."""


class Reconcile(Struct):
    """Ask `reconcile` how the uncertain attempt before this one ended, then decide."""


class Serve(Struct):
    """Answer from the record."""


class Wait(Struct):
    """Ask again after `seconds`, or when the record changes, at most `patience` seconds later."""

    seconds: float
    patience: float = 0.0


class Refuse(Struct):
    """Refuse the call with this error."""

    error: OncekeyError


Choice = Proceed | Reconcile | Serve | Wait | Refuse
_RUN: Final = Proceed()
_SERVE: Final = Serve()


def after_claim(answer: Answer, call: Call, *, patience: float, polls: int = 0) -> Choice:  # noqa: PLR0911 - one return per answer
    """Decide what follows from the answer to a claim.

    `patience` is how many more seconds the caller would wait, `polls` how often it has asked.
    """
    kind = type(answer)
    if kind is Granted:
        uncertain = answer.record.uncertain and call.reconcile is not None
        return Reconcile() if uncertain else _RUN
    if kind is Replay:
        return _SERVE
    if kind is Busy:
        if patience > 0:
            left = max(0.0, (answer.record.lease_end - answer.now) / SECOND)
            pause = min(_FIRST_POLL * 2 ** min(polls, 10), _SLOWEST_POLL)
            return Wait(min(pause, patience, left), min(patience, left))
        return Refuse(busy(answer, call))
    if kind is Mismatch:
        return Refuse(reused(call))
    if kind is Held:
        return Refuse(unknown(call))
    return Wait(0.0)  # Spent: a new nonce gets a new answer


def busy(answer: Answer, call: Call) -> InProgressError:
    """Return the refusal while another attempt runs.

    Its `retry_after` is that of the terms, but at most the rest of the other attempt's lease.
    """
    left = max(0.0, (answer.record.lease_end - answer.now) / SECOND)
    return in_progress(call, min(call.terms.retry_after, left), left)


def in_progress(call: Call, retry_after: float, lease_left: float | None = None) -> InProgressError:
    """Return the refusal of a caller that cannot wait any longer."""
    msg = f"{call.name} is in progress; ask again in {retry_after:.3g} s"
    return InProgressError(
        msg, key=call.key, scope=call.scope, retry_after=retry_after, lease_left=lease_left
    )


def reused(call: Call) -> KeyReusedError:
    """Return the refusal of another operation under the same key."""
    msg = f"{call.name} was used with other arguments; a new operation needs a new key"
    return KeyReusedError(msg, key=call.key, scope=call.scope)


def unknown(call: Call) -> OutcomeUnknownError:
    """Return the refusal while the outcome of an attempt is unknown."""
    msg = (
        f"{call.name} is held: an attempt ended without a definite outcome; find out whether the "
        f"effect happened, then resolve it with a result, an error or a retry"
    )
    return OutcomeUnknownError(msg, key=call.key, scope=call.scope)


def lost(call: Call) -> LeaseLostError:
    """Return the refusal of an attempt that does not own its record any more."""
    msg = (
        f"{call.name} lost its record while it ran: its lease ended and another attempt took it "
        f"over, or the record was removed; its outcome was not recorded"
    )
    return LeaseLostError(msg, key=call.key, scope=call.scope)


# How an attempt ends


class Fail(Struct):
    """Keep the error and raise it again for every duplicate."""


class Leave(Struct):
    """Release the key, or hold it."""

    uncertain: bool
    hold: bool


def after_error(error: BaseException, call: Call, *, unsure: bool = False) -> Fail | Leave:
    """Decide how the record ends after blocking code raised `error`.

    Only an Exception is definite. Anything else (cancellation, SystemExit, KeyboardInterrupt) stops
    the code at an arbitrary point. Each exception of a group is judged as it would be alone, and
    the worst of them counts. `unsure` says that a step was done and could not be noted, which makes
    the outcome uncertain unless the error is one to keep.
    """
    return _ending(_judge(error, call.terms, siblings=False), call, unsure=unsure)


def after_error_async(error: BaseException, call: Call, *, unsure: bool = False) -> Fail | Leave:
    """Decide how the record ends after a coroutine raised `error`.

    A group means that other tasks were cancelled at an arbitrary point, which it does not tell. So
    it is uncertain, unless each of its exceptions is one to keep or is named by `definite`.
    """
    return _ending(_judge(error, call.terms, siblings=True), call, unsure=unsure)


class _End(IntEnum):
    """What an error means for the effect. Of several, the greatest counts."""

    KEPT = 0
    DEFINITE = 1
    UNCERTAIN = 2


def _judge(error: BaseException, terms: Terms, *, siblings: bool) -> _End:
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, terms.keep + terms.definite):
        worst = max(_judge(one, terms, siblings=siblings) for one in error.exceptions)
        return _End.UNCERTAIN if siblings and not _named(error, terms) else worst
    if not isinstance(error, Exception):
        return _End.UNCERTAIN
    if isinstance(error, terms.keep):
        return _End.KEPT
    return _End.UNCERTAIN if is_uncertain(error, terms) else _End.DEFINITE


def _named(group: BaseExceptionGroup[Any], terms: Terms) -> bool:
    """Return whether the user has said of each exception in the group what it means."""
    return group.split(terms.keep + terms.definite)[1] is None


def is_uncertain(error: BaseException, terms: Terms) -> bool:
    """Return whether the effect may have happened although this error was raised."""
    if isinstance(error, terms.definite):
        return False
    return isinstance(error, terms.uncertain) or (terms.uncertain_clients and of_a_client(error))


def _ending(end: _End, call: Call, *, unsure: bool) -> Fail | Leave:
    if end is _End.KEPT:
        return Fail()
    if end is _End.UNCERTAIN or unsure:
        return Leave(uncertain=True, hold=call.terms.hold and call.reconcile is None)
    return Fail() if call.terms.keep_all else Leave(uncertain=False, hold=False)


def after_refusal(record: Record | None, call: Call) -> Serve | Refuse:
    """Decide what to do after a refused settle: serve the winner's answer if there is one."""
    if record is None or record.status not in ("completed", "failed"):
        return Refuse(lost(call))
    return Refuse(lost(call)) if differ(record.fingerprint, call.fingerprint) else _SERVE


def served(record: Record, call: Call) -> Any:
    """Return the value of a settled record, or raise its kept failure.

    Raise ResultNotKeptError if it has no value, UnreadableError if it cannot be decoded.
    """
    key, scope = call.key, call.scope
    try:
        if record.status == "failed":
            error, type_name, message = decode_error(record.error or b"", call.terms.keep)
            raise error or RememberedError(message, key=key, scope=scope, type_name=type_name)
        if record.result is None:
            msg = f"{call.name} was completed, but its result was not kept; it does not run again"
            raise ResultNotKeptError(msg, key=key, scope=scope)
        return call.codec.decode(record.result)
    except UnreadableBytesError as cause:
        msg = (
            f"{call.name} was {record.status}, but what is stored does not fit the return "
            f"annotation or this version ({cause}); it does not run again"
        )
        raise UnreadableError(msg, key=key, scope=scope) from None


# What `reconcile` says


class Done(Struct, frozen=True):
    """The effect happened, and this is the value that the call would have returned."""

    value: Any = None


class NotDone(Struct, frozen=True):
    """The effect did not happen and will not happen: the call may run again."""


class Unknown(Struct, frozen=True):
    """It cannot be found out: hold the key for a human."""


class Complete(Struct):
    """Settle with the value that `reconcile` found."""

    result: bytes


class Postpone(Struct):
    """Give the record back: it is too early to trust that the effect did not happen."""

    seconds: float


class Hold(Struct):
    """Hold the record for a human."""


def after_reconcile(
    said: object, answer: Answer, call: Call
) -> Complete | Proceed | Postpone | Hold:
    """Decide what follows from what `reconcile` returned.

    Raise ConfigurationError if that is none of the three answers, or a value that cannot be kept.
    """
    if isinstance(said, Done):
        try:
            return Complete(call.codec.encode(said.value))
        except NotKeepableError as error:
            msg = f"reconcile found {call.name} done, with a value that cannot be kept: {error}"
            raise ConfigurationError(msg) from None
    if isinstance(said, NotDone):
        early = answer.record.finished + call.terms.quiet - answer.now
        return Postpone(early / SECOND) if early > 0 else _RUN
    if isinstance(said, Unknown):
        return Hold()
    msg = f"reconcile must return Done(value), NotDone() or Unknown(), but it returned {said!r}"
    raise ConfigurationError(msg)
