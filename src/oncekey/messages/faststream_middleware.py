"""The middleware of a broker or a router: every handler below it is protected."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

from faststream import BaseMiddleware, Context

from oncekey.core.codec import codec_of
from oncekey.functions import scope_of
from oncekey.messages.delivery import AsyncDelivery
from oncekey.messages.faststream_guard import DEFAULT_WAIT, Guard, Transaction
from oncekey.messages.faststream_message import checked
from oncekey.messages.faststream_reply import ReplyCodec
from oncekey.messages.inbox_async import AsyncInbox
from oncekey.policy import Duration

if TYPE_CHECKING:
    from faststream import ContextRepo, StreamMessage

_DELIVERY: Final = "oncekey_delivery"
_CONNECTION: Final = "oncekey_connection"

CurrentDelivery = Annotated[AsyncDelivery, Context(_DELIVERY)]
"""For an argument of a handler: the delivery that it processes."""
CurrentConnection = Annotated[Any, Context(_CONNECTION)]
"""For an argument of a handler: the connection that `transaction` gave, in its transaction."""


class InboxMiddleware:
    """Messages of every handler are processed once, and every duplicate gets the first reply.

    Each handler is a consumer of its own: that of the inbox, a slash, and the handler's name.
    """

    def __init__(
        self,
        inbox: AsyncInbox,
        *,
        transaction: Transaction | None = None,
        wait: Duration = DEFAULT_WAIT,
    ) -> None:
        """`transaction` chooses atomic mode: it gives a connection inside a transaction.

        `wait` is how long a message stays here while it is in progress elsewhere, before it is put
        back.
        """
        self._guard = Guard(inbox, transaction, wait)
        self._known: dict[Callable[..., Any], tuple[Guard, ReplyCodec]] = {}

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:  # noqa: ANN401 - of any broker
        """For one message, as FastStream asks for it."""
        return _OneMessage(msg, context=context, known=self.known)

    def check(self, broker: Any) -> None:  # noqa: ANN401 - of any kind
        """Refuses now, and not at the first message, a broker whose subscribers do not fit."""
        for subscriber in broker.subscribers:
            checked(subscriber)

    def known(self, handler: Callable[..., Any]) -> tuple[Guard, ReplyCodec]:
        """How messages of the handler are protected, and how its replies are kept."""
        found = self._known.get(handler)
        if found is None:
            codec = ReplyCodec(codec_of(handler).annotation)
            found = self._guard.of(scope_of(inspect.unwrap(handler))), codec
            self._known[handler] = found
        return found


class _OneMessage(BaseMiddleware[Any, Any]):
    def __init__(
        self,
        msg: Any,  # noqa: ANN401 - of any broker
        /,
        *,
        context: ContextRepo,
        known: Callable[[Callable[..., Any]], tuple[Guard, ReplyCodec]],
    ) -> None:
        super().__init__(msg, context=context)
        self._of = known

    async def consume_scope(self, call_next: Callable[[Any], Any], msg: StreamMessage[Any]) -> Any:  # noqa: ANN401 - the handler's own
        handler = _handler_of(call_next)
        if handler is None:  # somebody asked for a message or an answer, and waits for it
            return await call_next(msg)
        guard, codec = self._of(handler)

        async def run(delivery: AsyncDelivery, connection: object) -> Any:  # noqa: ANN401 - as above
            with (
                self.context.scope(_DELIVERY, delivery),
                self.context.scope(_CONNECTION, connection),
            ):
                return await call_next(msg)

        return await guard.reply(msg, self.context.get("handler_"), codec, run)


def _handler_of(call_next: Any) -> Callable[..., Any] | None:  # noqa: ANN401 - as FastStream nests it
    """The function behind the middlewares that FastStream has put around it."""
    while isinstance(call_next, functools.partial):
        call_next = call_next.args[0]
    wrapper = getattr(call_next, "__self__", None)
    found: Callable[..., Any] | None = getattr(wrapper, "_original_call", None)
    theirs = getattr(found, "__module__", "").startswith("faststream.")  # of its test brokers
    return None if theirs else found
