"""How a message goes back into its queue, with its retries as they were."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dramatiq import Actor, Broker, Retry
from dramatiq.middleware import Retries

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

_log = logging.getLogger("oncekey")
_RETRIES: Final = "retries"


class PutBack(Retry):
    """The message could not begin here and comes again later. This is no failure of its actor."""


def put_back(broker: Broker, message: MessageProxy, seconds: float, why: BaseException) -> PutBack:
    """What to raise, so that the message comes again with the same id and retries."""
    delay = max(1, math.ceil(seconds * 1000))
    if retries_of(broker) is None:  # nobody would send it again, and an error is a success
        _send(broker, message, delay)
    else:  # who sends it again counts up first
        message.options[_RETRIES] = message.options.get(_RETRIES, 0) - 1
    _log.debug(
        "%s[%s] comes back in %.3g s: %s", message.actor_name, message.message_id, seconds, why
    )
    return PutBack(str(why), delay=delay)


def _send(broker: Broker, message: MessageProxy, delay: int) -> None:
    try:
        broker.enqueue(message, delay=delay)  # type: ignore[arg-type]  # a proxy stands for a message
    except Exception:
        message.fail()  # among the dead letters it is not lost
        raise


def retries_of(broker: Broker) -> Retries | None:
    """The broker's retrying, if it has any."""
    return next((one for one in broker.middleware if isinstance(one, Retries)), None)


def always_put_back(broker: Broker, actor: Actor[Any, Any]) -> None:
    """A rule of the user's about what is retried is not asked about what is put back."""
    retries = retries_of(broker)
    rule = actor.options.get("retry_when", retries and retries.retry_when)
    if rule is not None:
        actor.options["retry_when"] = _but_put_back(rule)


def _but_put_back(
    rule: Callable[[int, BaseException], bool],
) -> Callable[[int, BaseException], bool]:
    def retry_when(retries: int, error: BaseException) -> bool:
        return isinstance(error, PutBack) or rule(retries, error)

    return retry_when
