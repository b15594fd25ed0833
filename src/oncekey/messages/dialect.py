"""What PostgreSQL and SQLite say differently: moments, parameters, and texts as numbers.

Statements are written once, with parameters as `:name`. A duration is a number of seconds that
PostgreSQL adds to its own clock; SQLite, which has no server and no clock that counts
microseconds, is told the moment by the machine that everybody who uses the file shares.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from msgspec import Struct

from oncekey.policy import SECOND

Values = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORM: Final = "%Y-%m-%d %H:%M:%S.%f"


class Dialect(Struct, frozen=True, kw_only=True):
    """The words of one kind of database."""

    name: Literal["postgres", "sqlite"]
    moment: str
    """Now, asked once for a statement."""
    micros: str
    """A moment as microseconds."""
    later: str
    """The moment that is a duration away."""
    earlier: str
    """The moment that was a duration ago."""
    greatest: str
    find: str
    """Where a text begins in another."""
    number: str
    octets: str
    skip_locked: str
    among: str
    """Opens two brackets around a SELECT of the rows that are meant."""
    limited: str
    """What gives a statement up that waits too long for a row which somebody has locked."""

    def after(self, name: str) -> str:
        """The moment that the duration `:name` is away from now."""
        return self.later.format(name=name)

    def alone(self, name: str) -> str:
        """The same in a statement that asks for the moment as often as it needs it."""
        return self.after(name).replace("t.now", self.moment)

    def values(self, durations: Mapping[str, int], **values: object) -> Values:
        """The parameters of a statement; durations are microseconds."""
        if self.name == "postgres":
            return {**values, **{name: took / SECOND for name, took in durations.items()}}
        now = time.time_ns() // 1000
        moments = {name: as_text(now + took) for name, took in durations.items()}
        ago = {f"{name}_ago": as_text(now - took) for name, took in durations.items()}
        return {**values, **moments, **ago, "now": as_text(now), "now_us": now}


def as_text(moment: int) -> str:
    """A moment as SQLite keeps it."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime(_FORM)


def as_micros(moment: object) -> int:
    """A moment as the statements answer it, in microseconds; 0 for none."""
    if not moment:
        return 0
    if isinstance(moment, str):
        told = datetime.fromisoformat(moment).replace(tzinfo=UTC) - _EPOCH
        return told // timedelta(microseconds=1)
    return int(moment)  # type: ignore[call-overload, no-any-return]  # a number of the driver


POSTGRES: Final = Dialect(
    name="postgres",
    moment="clock_timestamp()",
    micros="CAST(extract(epoch FROM {}) * 1000000 AS bigint)",
    later="t.now + make_interval(secs => CAST(:{name} AS double precision))",
    earlier="clock_timestamp() - make_interval(secs => CAST(:{name} AS double precision))",
    greatest="GREATEST",
    find="strpos",
    number="bigint",
    octets="bytea",
    skip_locked="FOR UPDATE SKIP LOCKED",
    among="processed_messages.ctid = ANY (ARRAY(SELECT ctid",
    limited="set_config('lock_timeout', '1s', true)",
)
SQLITE: Final = Dialect(
    name="sqlite",
    moment=":now",
    micros="{}",
    later=":{name}",
    earlier=":{name}_ago",
    greatest="max",
    find="instr",
    number="integer",
    octets="blob",
    skip_locked="",
    among="(processed_messages.rowid IN (SELECT rowid",
    limited="1",
)
