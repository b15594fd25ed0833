"""Policies: how a call is protected and how long things last, and the switch to turn it off."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from datetime import timedelta
from typing import Final, Literal, TypedDict, cast

from msgspec import Struct

from oncekey.core.network_errors import NETWORK
from oncekey.errors import ConfigurationError

# Durations and sizes as people write them: "100ms", "5min", "24h", seconds, "1MiB".


Duration = str | int | float | timedelta

SECOND = 1_000_000  # stores count whole microseconds
LONGEST = 100 * 366 * 86400.0  # a hundred years, so that every time can be written as a date

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)\s*")
_SIZES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "KB": 1000, "MB": 1000**2}
_SIZE = re.compile(r"\s*(\d+)\s*(B|KiB|MiB|KB|MB)\s*")


def seconds(value: Duration, name: str, *, zero: bool = False) -> float:
    """Return the duration in seconds. Raise ConfigurationError if it is not valid.

    `zero` says whether zero is allowed.
    """
    number = _read(value, name)
    if not 0 <= number <= LONGEST or (number == 0 and not zero):
        least = "zero or more" if zero else "more than zero"
        msg = f"{name} must be {least} and at most a hundred years, but it is {value!r}"
        raise ConfigurationError(msg)
    return number


def _read(value: Duration, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match:
            return float(match[1]) * _UNITS[match[2]]
    msg = (
        f'{name} must be a duration such as "100ms", "5s", "5min", "24h" or "7d", '
        f"a number of seconds or a timedelta, but it is {value!r}"
    )
    raise ConfigurationError(msg)


def microseconds(value: float) -> int:
    """Convert seconds to whole microseconds, at least one for anything above zero."""
    return max(1, round(value * SECOND)) if value else 0


def size(value: str | int, name: str) -> int:
    """Return the size in bytes. Raise ConfigurationError if it is not valid."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match and int(match[1]):
            return int(match[1]) * _SIZES[match[2]]
    msg = f'{name} must be a number of bytes above zero or a size such as "1MiB", not {value!r}'
    raise ConfigurationError(msg)


# Policy says how an operation is protected; Terms is the same with all defaults filled in.
#
# A field that is None is taken from the next level: the single use, then the policy of the `Once`,
# then the environment, then the default of the surface.


OnError = Literal["release", "keep"]
OnCrash = Literal["retry", "hold"]
FailMode = Literal["open", "closed"]
Errors = tuple[type[BaseException], ...]

_DURATIONS = ("ttl", "lease", "max_run", "retry_after")
_MAY_BE_ZERO = ("wait", "quiet")
_CHOICES = {
    "on_error": ("release", "keep"),
    "on_crash": ("retry", "hold"),
    "fail_mode": ("open", "closed"),
}
_FROM_ENVIRONMENT = ("ttl", "lease", "wait", "fail_mode")


class PolicyFields(TypedDict, total=False):
    """The fields of `Policy`, for functions that take them as keyword arguments."""

    ttl: Duration | None
    lease: Duration | None
    heartbeat: bool | None
    max_run: Duration | None
    wait: Duration | None
    retry_after: Duration | None
    on_error: OnError | None
    keep: type[BaseException] | Errors | None
    uncertain: type[BaseException] | Errors | None
    definite: type[BaseException] | Errors | None
    on_crash: OnCrash | None
    max_attempts: int | None
    fail_mode: FailMode | None
    max_result: str | int | None
    quiet: Duration | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How an operation is protected. A field that is None is taken from the next level."""

    ttl: Duration | None = None
    """How long a settled record answers duplicates."""
    lease: Duration | None = None
    """How long a claim lives without renewal."""
    heartbeat: bool | None = None
    """Whether the lease is renewed at a third of its length while the code runs."""
    max_run: Duration | None = None
    """How long the code may run before the lease is no longer renewed."""
    wait: Duration | None = None
    """How long a duplicate waits for the attempt that is running."""
    retry_after: Duration | None = None
    """How long a refused duplicate is told to wait, at most the rest of the lease."""
    on_error: OnError | None = None
    """Whether a definite exception releases the key or is kept and raised again."""
    keep: type[BaseException] | Errors | None = None
    """Exceptions that are kept and raised again, whatever `on_error` says."""
    uncertain: type[BaseException] | Errors | None = None
    """Exceptions after which it is unknown whether the effect happened.

    If TimeoutError and ConnectionError are among them, then so are the errors that well-known
    clients raise for the same causes; the reference lists them.
    """
    definite: type[BaseException] | Errors | None = None
    """Exceptions after which the effect has certainly not happened, whatever `uncertain` says."""
    on_crash: OnCrash | None = None
    """Whether an attempt without a definite outcome is run again or held for a human."""
    max_attempts: int | None = None
    """The number of attempts after which the key is held."""
    fail_mode: FailMode | None = None
    """Whether a call runs unprotected or is refused while the store is down."""
    max_result: str | int | None = None
    """The size above which a result is not kept. The operation still counts as completed."""
    quiet: Duration | None = None
    """How long after an uncertain end a `NotDone` from `reconcile` is not trusted yet.

    A request of a dead attempt may still be on its way. Set 0 when the effect carries
    `downstream_key`, so that it cannot happen twice. Default: twice the lease.
    """

    def __post_init__(self) -> None:
        """Check each field now, so that the error points at the line with the mistake."""
        _durations(self)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                msg = f"{name} must be one of {', '.join(choices)}, but it is {value!r}"
                raise ConfigurationError(msg)
        for name in ("keep", "uncertain", "definite"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _exception_types(value, name))
        if self.heartbeat is not None and not isinstance(self.heartbeat, bool):
            msg = f"heartbeat must be True or False, but it is {self.heartbeat!r}"
            raise ConfigurationError(msg)
        _check_attempts(self.max_attempts)
        if self.max_result is not None:
            object.__setattr__(self, "max_result", size(self.max_result, "max_result"))

    def over(self, below: Policy) -> Policy:
        """Return a policy with the fields of this one, and those of `below` where they are None."""
        said = {f.name: getattr(self, f.name) for f in fields_of(self)}
        return replace(below, **{name: value for name, value in said.items() if value is not None})


def _exception_types(value: object, name: str) -> Errors:
    types = value if isinstance(value, tuple) else (value,)
    for one in types:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            msg = f"{name} must be an exception type or a tuple of them, but it holds {one!r}"
            raise ConfigurationError(msg)
    return cast("Errors", types)


def policy_of(fields: PolicyFields) -> Policy:
    """Return the policy with these fields. Raise ConfigurationError for a name that it lacks."""
    known = [field.name for field in fields_of(Policy)]
    for name in fields:
        if name not in known:
            from difflib import get_close_matches

            like = get_close_matches(name, known, 1)
            hint = f"did you mean {like[0]!r}?" if like else f"there are {', '.join(known)}"
            msg = f"there is no option {name!r}; {hint}"
            raise ConfigurationError(msg)
    return Policy(**fields)


def _durations(policy: Policy) -> dict[str, float]:
    """Return the durations that are set, in seconds. Raise ConfigurationError for a wrong one."""
    return {
        name: seconds(value, name, zero=name in _MAY_BE_ZERO)
        for name in (*_DURATIONS, *_MAY_BE_ZERO)
        if (value := getattr(policy, name)) is not None
    }


def _check_attempts(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"max_attempts must be a whole number above zero, but it is {value!r}"
        raise ConfigurationError(msg)


FUNCTION = Policy(
    ttl="24h",
    lease="5min",
    heartbeat=True,
    wait="10s",
    retry_after="1s",
    on_error="release",
    keep=(),
    uncertain=NETWORK,
    definite=(),
    on_crash="retry",
    fail_mode="closed",
    max_result="1MiB",
)
"""The defaults of a protected function."""


class Terms(Struct, frozen=True, kw_only=True):
    """A policy without gaps, in the units of the engine: microseconds as int, seconds as float."""

    ttl: int
    lease: int
    heartbeat: bool
    max_run: float | None
    wait: float
    retry_after: float
    keep_all: bool
    keep: Errors
    uncertain: Errors
    uncertain_clients: bool
    definite: Errors
    hold: bool
    max_attempts: int | None
    fail_open: bool
    max_result: int
    quiet: int
    heartbeat_every: float


def terms(policy: Policy) -> Terms:
    """Return the terms of a policy in which all required fields are set."""
    at = _durations(policy)
    lease = microseconds(at["lease"])
    return Terms(
        ttl=microseconds(at["ttl"]),
        lease=lease,
        heartbeat=bool(policy.heartbeat),
        max_run=at.get("max_run"),
        wait=at["wait"],
        retry_after=at["retry_after"],
        keep_all=policy.on_error == "keep",
        keep=cast("Errors", policy.keep),
        uncertain=cast("Errors", policy.uncertain),
        uncertain_clients=set(NETWORK) <= set(cast("Errors", policy.uncertain)),
        definite=cast("Errors", policy.definite),
        hold=policy.on_crash == "hold",
        max_attempts=policy.max_attempts,
        fail_open=policy.fail_mode == "open",
        max_result=cast("int", policy.max_result),
        quiet=microseconds(at["quiet"]) if "quiet" in at else 2 * lease,
        heartbeat_every=at["lease"] / 3,
    )


def from_environment(environment: Mapping[str, str]) -> Policy:
    """Return the policy in `ONCEKEY_TTL`, `_LEASE`, `_WAIT` and `_FAIL_MODE`.

    Raise ConfigurationError for these, and for a switch that is neither on nor off.
    """
    for name in ("ONCEKEY_DISABLED", "ONCEKEY_STRICT"):
        switch = environment.get(name, "")
        if switch.lower() not in (*_ON, *_OFF):
            msg = f"{name} is a switch: set it to 1 or 0, not to {switch!r}"
            raise ConfigurationError(msg)
    said: dict[str, str] = {}
    for name in _FROM_ENVIRONMENT:
        value = environment.get(f"ONCEKEY_{name.upper()}")
        if value:
            said[name] = value
    try:
        return Policy(**cast("PolicyFields", said))
    except ConfigurationError as error:
        msg = f"the environment sets ONCEKEY_*: {error}"
        raise ConfigurationError(msg) from None


# The off switch, mostly for tests.


_ON: Final = ("1", "true", "yes", "on")
_OFF: Final = ("", "0", "false", "no", "off")


class _Switch:
    off = 0


def switched_off() -> bool:
    """Return whether `disabled` is active in this process."""
    return _Switch.off > 0


def off_in_environment() -> bool:
    """Return whether `ONCEKEY_DISABLED` is set to a true value."""
    return _is_set("ONCEKEY_DISABLED")


def strict() -> bool:
    """Return whether `ONCEKEY_STRICT` is set to a true value, as the pytest plugin does."""
    return _is_set("ONCEKEY_STRICT")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in _ON


@contextmanager
def disabled() -> Iterator[None]:
    """Turn protection off in the block, in all threads: calls run, and no store is asked."""
    _Switch.off += 1
    try:
        yield
    finally:
        _Switch.off -= 1
