"""The tag on a job that was deduplicated when it was enqueued: whose record the worker frees."""

from __future__ import annotations

import logging
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from oncekey.core.requests import Forget
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.once import Once

_log = logging.getLogger("oncekey")

HEADER: Final = "oncekey-enqueued"
"""The header that carries the tag."""

Until = Literal["started", "finished", "succeeded", "ttl"]
"""When a job is no longer a duplicate of one that is enqueued."""

Moment = Literal["started", "failed", "succeeded"]

_FREES: Final[dict[Until, tuple[Moment, ...]]] = {
    "started": ("started",),
    "finished": ("failed", "succeeded"),
    "succeeded": ("succeeded",),
    "ttl": (),
}


def checked_until(until: object) -> Until:
    """One of the rules."""
    if isinstance(until, str) and until in _FREES:
        return until
    msg = f"until must be one of {', '.join(get_args(Until))}, but it is {until!r}"
    raise ConfigurationError(msg)


class Tag(Struct, array_like=True):
    """The record of an enqueued job, and the rule by which it is freed."""

    scope: str | None
    key: str
    token: int
    until: Until

    def text(self) -> str:
        """The value of the header."""
        return msgspec.json.encode(self).decode()

    def _ask(self) -> Forget:
        # By force: the producer may not have settled yet. What it then tries is refused, and that
        # is success too.
        return Forget(self.scope, self.key, token=self.token, force=True)


def read_tag(text: object) -> Tag | None:
    """The tag in a header; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=Tag)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def free(once: Once, tag: Tag | None, moment: Moment) -> None:
    """At this moment another job like it may be enqueued, if the rule says so.

    A store that is down does not fail the job: the ttl frees the key later.
    """
    if tag is None or moment not in _FREES[tag.until]:
        return
    try:
        once.store.forget(tag._ask())  # noqa: SLF001 - the same module
    except OncekeyError as error:
        _log.warning("an enqueued job could not be freed, its ttl will: %s", error)


async def free_async(once: Once, tag: Tag | None, moment: Moment) -> None:
    """The same for coroutines."""
    if tag is None or moment not in _FREES[tag.until]:
        return
    try:
        await once.store_async.forget(tag._ask())  # noqa: SLF001 - the same module
    except OncekeyError as error:
        _log.warning("an enqueued job could not be freed, its ttl will: %s", error)
