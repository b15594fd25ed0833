"""The option `wait`: how many replicas must have a claim before the code runs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from oncekey.errors import ConfigurationError, StoreError
from oncekey.policy import Duration, seconds

Wait = tuple[int, Duration]
"""A number of replicas, and how long to wait for them."""

_FORM: Final = 'wait takes a number of replicas and a time-out, such as (1, "100ms")'


class Replicas(NamedTuple):
    """The option `wait` in the form of the command WAIT."""

    needed: int
    milliseconds: int

    def short(self, where: str, reached: int) -> StoreError:
        """Return the error for a claim that too few replicas have."""
        msg = (
            f"Redis at {where} reached {reached} of {self.needed} replicas within "
            f"{self.milliseconds} ms; the claim was released and nothing ran"
        )
        return StoreError(msg, happened=False)


def replicas_of(wait: Wait | None, settings: dict[str, Any] | None) -> Replicas | None:
    """Check the option. Raise ConfigurationError if it is not valid for a client of these settings.

    `settings` is None for a cluster, where it is not possible.
    """
    if wait is None or isinstance(wait, Replicas):
        return wait
    if not isinstance(wait, tuple) or len(wait) != 2:  # noqa: PLR2004 - a pair
        raise ConfigurationError(f"{_FORM}, but it is {wait!r}")
    count, timeout = wait
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigurationError(f"{_FORM}, with one replica or more, but it is {wait!r}")
    patience = seconds(timeout, "the time-out of wait")
    if settings is None:
        msg = (
            "wait needs one connection for a claim and its replicas, which a client of a cluster "
            "does not give; leave wait out, or set min-replicas-to-write on its nodes"
        )
        raise ConfigurationError(msg)
    longest = settings.get("socket_timeout")
    if longest is not None and patience >= longest:
        msg = (
            f"the time-out of wait must be shorter than the socket_timeout of the client, "
            f"{longest} s, but it is {timeout!r}"
        )
        raise ConfigurationError(msg)
    return Replicas(count, max(1, round(patience * 1000)))


def taken_out(url: str, wait: Wait | None) -> tuple[str, Wait | None]:
    """Return the URL without its option `wait`, which redis-py does not know, and the option."""
    address, _, query = url.partition("?")
    options = query.split("&")
    found = [option for option in options if option.startswith("wait=")]
    if not found:
        return url, wait
    if wait is not None or len(found) > 1:
        raise ConfigurationError("wait is given twice; give it once, in the URL or beside it")
    said = unquote(found[0]).removeprefix("wait=")
    count, comma, timeout = said.partition(",")
    if not comma or not count.isdecimal():
        msg = f"write wait=1,100ms for one replica within 100 ms, not wait={said}"
        raise ConfigurationError(msg)
    rest = "&".join(option for option in options if option not in found)
    return f"{address}?{rest}" if rest else address, (int(count), timeout)
