"""The decorator for one handler of FastStream."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar, cast

from faststream import Context, ContextRepo

from oncekey.core.codec import codec_of
from oncekey.functions import checked_function, is_async, name_of
from oncekey.messages.delivery import AsyncDelivery
from oncekey.messages.faststream_guard import DEFAULT_WAIT, Guard, Transaction
from oncekey.messages.faststream_reply import ReplyCodec
from oncekey.messages.inbox_async import AsyncInbox
from oncekey.policy import Duration

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("oncekey")

_PARAMETER: Final = "oncekey_context"
_OURS: Final[tuple[str, ...]] = ("delivery", "connection")
"""Arguments of the handler that the decorator brings, where the handler has them."""


def once_message(
    inbox: AsyncInbox, *, transaction: Transaction | None = None, wait: Duration = DEFAULT_WAIT
) -> Callable[[F], F]:
    """A decorator below `@broker.subscriber`: the handler is the consumer that the inbox names.

    An argument `delivery` is the delivery that is processed, and with `transaction`, which chooses
    atomic mode, an argument `connection` is what that gave. `wait` is how long a message stays
    here while it is in progress elsewhere, before it is put back.
    """
    guard = Guard(inbox, transaction, wait)

    def decorate(function: F) -> F:
        return cast("F", _wrapped(guard, checked_function(function)))

    return decorate


def _wrapped(guard: Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    wanted = [name for name in _OURS if name in signature.parameters]
    call = function if is_async(function) else functools.partial(asyncio.to_thread, function)
    codecs: list[ReplyCodec] = []
    warned: list[bool] = []

    @functools.wraps(function)
    async def wrapper(
        *args: Any,
        oncekey_context: ContextRepo | None = None,
        **kwargs: Any,
    ) -> Any:  # noqa: ANN401 - the handler's own
        message = None if oncekey_context is None else oncekey_context.get("message")
        if oncekey_context is None or message is None:
            if not warned:
                warned.append(True)
                _log.warning("%s runs unprotected: it was not called by FastStream", name)
            return await call(*args, **kwargs)
        if not codecs:  # annotations may name what is defined after the function
            codecs.append(ReplyCodec(codec_of(function).annotation))

        async def run(delivery: AsyncDelivery, connection: object) -> Any:  # noqa: ANN401 - as above
            brought = {"delivery": delivery, "connection": connection}
            kwargs.update({name: brought[name] for name in wanted})
            return await call(*args, **kwargs)

        subscriber = oncekey_context.get("handler_")
        return await guard.reply(message, subscriber, codecs[0], run)

    name = name_of(function)
    wrapper.__signature__ = _with_context(signature)  # type: ignore[attr-defined]  # functions have it
    return wrapper


def _with_context(signature: inspect.Signature) -> inspect.Signature:
    """The signature as FastStream reads it: without what is brought here, and with its context."""
    given = [one for one in signature.parameters.values() if one.name not in _OURS]
    own = inspect.Parameter(
        _PARAMETER,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[Any, Context("context")],
    )
    at = len(given) - (bool(given) and given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return signature.replace(parameters=[*given[:at], own, *given[at:]])
