"""Policies: what protection means for a call, how long things last, and the off switch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Literal, TypedDict, cast

from msgspec import Struct

from oncekey.errors import ConfigurationError

# Durations and sizes as people write them: "100ms", "5min", "24h", seconds, "1MiB".


Duration = str | int | float | timedelta

SECOND = 1_000_000  # stores count whole microseconds
LONGEST = 100 * 366 * 86400.0  # so that every moment can be written as a date

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)\s*")
_SIZES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "KB": 1000, "MB": 1000**2}
_SIZE = re.compile(r"\s*(\d+)\s*(B|KiB|MiB|KB|MB)\s*")


def seconds(value: Duration, name: str, *, zero: bool = False) -> float:
    """The duration in seconds; `zero` says whether none at all is a valid answer."""
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
    """Whole microseconds, at least one for anything above zero."""
    return max(1, round(value * SECOND)) if value else 0


def size(value: str | int, name: str) -> int:
    """The size in bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match and int(match[1]):
            return int(match[1]) * _SIZES[match[2]]
    msg = f'{name} must be a number of bytes above zero or a size such as "1MiB", not {value!r}'
    raise ConfigurationError(msg)


# Policy: how an operation is protected, and Terms: the same with every blank filled in.
#
# A field that is None is left to the next in line:
# the single use, then the policy of the `Once`, then the environment, then the surface's default.


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


NETWORK: Errors = (TimeoutError, ConnectionError)
"""Errors of a network: the request may have arrived. Clients have their own for the same."""

_OF_CLIENTS = frozenset(
    {
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "botocore.exceptions.HTTPClientError",
        "httpx.TransportError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "requests.exceptions.ChunkedEncodingError",
        "stripe._error.APIConnectionError",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.TimeoutError",
    }
)


def of_a_client(kind: type[BaseException]) -> bool:
    """Whether a well-known client raises it for an error of the network, told by its name."""
    return any(f"{one.__module__}.{one.__qualname__}" in _OF_CLIENTS for one in kind.__mro__)


class PolicyFields(TypedDict, total=False):
    """The fields of `Policy`, as keyword arguments of whatever takes a policy."""

    ttl: Duration | None
    lease: Duration | None
    heartbeat: bool | None
    max_run: Duration | None
    wait: Duration | None
    retry_after: Duration | None
    on_error: OnError | None
    keep: type[BaseException] | Errors | None
    uncertain: type[BaseException] | Errors | None
    on_crash: OnCrash | None
    max_attempts: int | None
    fail_mode: FailMode | None
    max_result: str | int | None
    quiet: Duration | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How an operation is protected. None leaves a field to the next in line."""

    ttl: Duration | None = None
    """How long a settled record answers duplicates."""
    lease: Duration | None = None
    """How long a claim lives without renewal."""
    heartbeat: bool | None = None
    """Whether the lease is renewed at a third of its length while the code runs."""
    max_run: Duration | None = None
    """After this long the lease is not renewed any more."""
    wait: Duration | None = None
    """How long a duplicate waits for the attempt that is running."""
    retry_after: Duration | None = None
    """What a refused duplicate is told to wait, at most the lease left."""
    on_error: OnError | None = None
    """Whether a definite exception frees the key or is kept and raised again."""
    keep: type[BaseException] | Errors | None = None
    """Exceptions that are kept and raised again, whatever `on_error` says."""
    uncertain: type[BaseException] | Errors | None = None
    """Exceptions after which nobody knows whether the effect happened.

    Where TimeoutError and ConnectionError are among them, so are the ones that httpx, requests,
    urllib3, aiohttp, botocore and stripe raise for the same.
    """
    on_crash: OnCrash | None = None
    """Whether an attempt without a definite outcome is run again or held for a human."""
    max_attempts: int | None = None
    """After this many attempts the key is held."""
    fail_mode: FailMode | None = None
    """Whether a call runs unprotected or is refused while the store is down."""
    max_result: str | int | None = None
    """A larger result is not kept; the operation counts as completed all the same."""
    quiet: Duration | None = None
    """How long after an uncertain end a `NotDone` from `reconcile` is not yet believed.

    A request of a dead attempt may still be on its way. Set 0 when the effect carries
    `downstream_key`, so that it cannot happen twice. Default: twice the lease.
    """

    _seconds: dict[str, float] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    def __post_init__(self) -> None:
        """Each field is checked now, so that a mistake shows where it was written."""
        for name in (*_DURATIONS, *_MAY_BE_ZERO):
            value = getattr(self, name)
            if value is not None:
                self._seconds[name] = seconds(value, name, zero=name in _MAY_BE_ZERO)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                msg = f"{name} must be one of {', '.join(choices)}, but it is {value!r}"
                raise ConfigurationError(msg)
        for name in ("keep", "uncertain"):
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
        """What this policy says, and what `below` says where it says nothing."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return replace(below, **{name: value for name, value in said.items() if value is not None})


def _exception_types(value: object, name: str) -> Errors:
    types = value if isinstance(value, tuple) else (value,)
    for one in types:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            msg = f"{name} must be an exception type or a tuple of them, but it holds {one!r}"
            raise ConfigurationError(msg)
    return cast("Errors", types)


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
    on_crash="retry",
    fail_mode="closed",
    max_result="1MiB",
)
"""What holds for a protected function where nobody says otherwise."""


class Terms(Struct, frozen=True, kw_only=True):
    """A policy with every blank filled in, in the units that the engine counts in."""

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
    hold: bool
    max_attempts: int | None
    fail_open: bool
    max_result: int
    quiet: int
    heartbeat_every: float


def terms(policy: Policy) -> Terms:
    """The terms of a policy that lies over a complete one."""
    at = policy._seconds  # noqa: SLF001 - the same module, the other half of Policy
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
        hold=policy.on_crash == "hold",
        max_attempts=policy.max_attempts,
        fail_open=policy.fail_mode == "open",
        max_result=cast("int", policy.max_result),
        quiet=microseconds(at["quiet"]) if "quiet" in at else 2 * lease,
        heartbeat_every=at["lease"] / 3,
    )


def from_environment(environment: Mapping[str, str]) -> Policy:
    """What `ONCEKEY_TTL`, `_LEASE`, `_WAIT` and `_FAIL_MODE` say."""
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


# The off switch: protection can be taken away for a while, in tests above all.


class _Switch:
    off = 0


def switched_off() -> bool:
    """Whether somebody has switched protection off in this process."""
    return _Switch.off > 0


def off_in_environment() -> bool:
    """Whether `ONCEKEY_DISABLED` says so."""
    return os.environ.get("ONCEKEY_DISABLED", "").lower() in ("1", "true", "yes", "on")


@contextmanager
def disabled() -> Iterator[None]:
    """Inside, every protected call simply runs, in all threads, and no store hears of it."""
    _Switch.off += 1
    try:
        yield
    finally:
        _Switch.off -= 1
