"""FastStream: process a message that is delivered twice once, and send its reply again.

    broker = NatsBroker(middlewares=[InboxMiddleware(inbox)])   # every handler of the broker

    @broker.subscriber("orders", stream="ORDERS", durable="billing")
    @once_message(inbox)                                        # or this one alone
    async def bill(order: Order) -> Receipt: ...

A duplicate does not run the handler. It returns the first result, which FastStream publishes as it
did, or would have done, the first time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

from msgspec import json
from msgspec.structs import replace

from oncekey.compat import pause_async
from oncekey.core.codec import PLAIN, Codec, NotKeepableError, UnreadableBytesError, codec_of
from oncekey.errors import (
    ConfigurationError,
    LeaseLostError,
    NotRecordedError,
    ResultNotKeptError,
    UnreadableError,
)
from oncekey.extras import needing
from oncekey.functions import checked_function, is_async, name_of, scope_of
from oncekey.messages import jetstream, rabbitmq
from oncekey.messages.acknowledge import NEVER, NOT_NOW
from oncekey.messages.delivery import AsyncDelivery
from oncekey.messages.errors import worth_another_try
from oncekey.messages.inbox_async import AsyncInbox
from oncekey.messages.limit import DeliveryLimit
from oncekey.messages.message import Message, from_redis_stream, message_of
from oncekey.outbox.outbox_async import AsyncOutbox
from oncekey.policy import Duration, seconds

with needing("faststream", __name__):
    from fast_depends.pydantic import PydanticSerializer
    from faststream import BaseMiddleware, Context, ContextRepo
    from faststream.exceptions import AckMessage, NackMessage, RejectMessage, StopConsume
    from faststream.message import encode_message
    from faststream.middlewares import AckPolicy
    from faststream.response import PublishCommand, PublishType, Response, ensure_response


if TYPE_CHECKING:
    from faststream import ContextRepo, StreamMessage


_LACKS: Final = (
    "an id of its broker; with FastStream that is the AMQP property message_id, the header "
    "Nats-Msg-Id or a stream of NATS, an entry of a Redis stream, or a record of Kafka"
)


class UnfitError(ConfigurationError, StopConsume):
    """The subscriber cannot be protected.

    FastStream stops it, since it would go on losing messages.
    """

    def __str__(self) -> str:
        """Return the reason. FastStream would only say that it was stopped."""
        return ConfigurationError.__str__(self)


def checked(subscriber: Any) -> None:
    """Raise UnfitError if FastStream does not acknowledge after the reply, or cannot ask again."""
    policy = getattr(subscriber, "ack_policy", None)
    if policy in (AckPolicy.ACK_FIRST, AckPolicy.MANUAL):
        name = AckPolicy(policy).name
        msg = (
            f"an inbox needs messages that are acknowledged after their reply, but this subscriber "
            f"has AckPolicy.{name} (with Kafka the default is ACK_FIRST, and lists and channels of "
            f"Redis have MANUAL): set ack_policy=AckPolicy.NACK_ON_ERROR where the broker delivers "
            f"again, and give the others a router without InboxMiddleware"
        )
        raise UnfitError(msg)
    module = type(subscriber).__module__
    of_kafka = module.startswith(("faststream.kafka.", "faststream.confluent."))
    if of_kafka and policy in (AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR):
        name = AckPolicy(policy).name
        msg = (
            f"an inbox needs messages that come again after an error, but with AckPolicy.{name} "
            f"Kafka commits the offset of a message whose handler failed, so that it is lost: set "
            f"ack_policy=AckPolicy.NACK_ON_ERROR"
        )
        raise UnfitError(msg)
    if module.startswith("faststream.nats.") and getattr(subscriber, "stream", None) is None:
        msg = (
            "an inbox needs a stream of JetStream, as in subscriber(..., stream='ORDERS'): core "
            "NATS delivers nothing again, so that a message in progress elsewhere would be lost"
        )
        raise UnfitError(msg)
    if module.startswith("faststream.nats."):
        try:
            jetstream.check_policy(jetstream.policy_of(getattr(subscriber, "config", None)))
        except ConfigurationError as error:
            raise UnfitError(str(error)) from None


def limit_of(subscriber: Any) -> DeliveryLimit | None:
    """Return the limit of redeliveries that the subscriber has in its broker, if one is known."""
    queue, arguments = _queue(subscriber)
    if type(subscriber).__module__.startswith("faststream.nats."):
        most = getattr(getattr(subscriber, "config", None), "max_deliver", None)
        return jetstream.limit_of(str(getattr(subscriber, "subject", "")), most)
    place = queue or getattr(getattr(subscriber, "queue", None), "name", "")
    return rabbitmq.limit_of(place, arguments)


def message_from(told: StreamMessage[Any]) -> Message:
    """Return the message as the inbox sees it. Ignore ids that FastStream makes up."""
    raw = told.raw_message
    if isinstance(raw, (list, tuple)) or told.batch_headers:
        msg = (
            "a batch is processed by a handler below @once_message(inbox, transaction=...) which "
            "has an argument named deliveries, and by no other; or subscribe to single messages"
        )
        raise UnfitError(msg)
    if isinstance(raw, Mapping):
        found = _of_redis(raw)
    else:
        try:
            found = message_of(raw)
        except ConfigurationError:  # of an unknown broker: a key may still be made
            found = Message(lacks=_LACKS)
    attributes = {**found.attributes, **told.headers}
    return replace(found, attributes=attributes, body=told.body, native=told)


def messages_from(told: StreamMessage[Any]) -> list[Message]:
    """Return the messages of a batch, in its order."""
    raw = told.raw_message
    if not isinstance(raw, Mapping):
        return [message_of(one) for one in raw]
    bodies = json.decode(told.body)
    entries = zip(raw.get("message_ids") or (), raw["data"], strict=True)
    found = [_of_entry(raw["channel"], entry, None) for entry in entries]
    return [
        replace(one, attributes=headers, body=body)
        for one, headers, body in zip(found, told.batch_headers, bodies, strict=True)
    ]


def _of_redis(raw: Mapping[str, Any]) -> Message:
    ids = raw.get("message_ids") or ()
    if raw.get("type") != "stream" or not ids:
        return Message(type=str(raw.get("channel") or ""), lacks=_LACKS)
    before = raw.get("delivery_counts")
    return _of_entry(raw["channel"], (ids[0], raw["data"]), before[0] + 1 if before else None)


def _of_entry(channel: str, entry: tuple[Any, Mapping[Any, Any]], count: int | None) -> Message:
    """Return the message of an entry. FastStream itself says what its attributes are."""
    return replace(from_redis_stream(channel, entry, count), type=channel, attributes={})


def _broker(told: StreamMessage[Any]) -> str:
    """Return the name of the broker, as FastStream calls its packages."""
    return type(told).__module__.removeprefix("faststream.").partition(".")[0]


def _queue(subscriber: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the arguments of the subscriber's queue in RabbitMQ."""
    declared = getattr(subscriber, "_queue_obj", None)
    arguments = getattr(getattr(subscriber, "queue", None), "arguments", None) or {}
    return getattr(declared, "name", ""), arguments


def _limited(message: Message, subscriber: Any) -> Message:
    """Return the message with the limit of attempts that its queue in RabbitMQ gives it."""
    if _broker(message.native) != "rabbit":
        return message
    most = rabbitmq.most_attempts(message.native.raw_message, _queue(subscriber)[1])
    return replace(message, max_attempts=most)


@asynccontextmanager
async def waiting(told: StreamMessage[Any], subscriber: Any, wait: float) -> AsyncIterator[float]:
    """Yield how many seconds a message may wait here that cannot be processed now."""
    raw, broker = told.raw_message, _broker(told)
    if broker == "nats":
        with jetstream.patience(raw, await jetstream.limits_of(raw), wait) as patience:
            yield patience
    elif broker == "rabbit":
        queue, arguments = _queue(subscriber)
        channel = getattr(subscriber, "channel", None)
        with rabbitmq.held(raw, getattr(channel, "prefetch_count", None)) as may_wait:
            if rabbitmq.in_order(arguments) or not queue:
                yield rabbitmq.LONGEST_HOLD
            else:
                # Each death of a consumer that holds the message counts as a delivery.
                yield wait if may_wait and not rabbitmq.came_back(raw) else 0.0
    else:
        yield wait


async def put_back(
    told: StreamMessage[Any], subscriber: Any, why: Exception
) -> NackMessage | AckMessage:
    """Put the message back, so that it is delivered later. Return what tells FastStream so.

    JetStream waits itself. RabbitMQ has a delay queue for it. An entry that is left pending in a
    Redis stream comes again when it was idle for long enough.
    """
    raw, broker = told.raw_message, _broker(told)
    if broker == "nats":
        return NackMessage(delay=jetstream.delay_of(await jetstream.limits_of(raw), why))
    if broker == "rabbit":
        queue, arguments = _queue(subscriber)
        if not rabbitmq.in_order(arguments) and await rabbitmq.put_back(raw, queue, why):
            return AckMessage()
        await pause_async(rabbitmq.pause_before_requeue(why))
    elif broker != "redis":  # it would be delivered at once
        await pause_async(getattr(why, "retry_after", 1.0))
    return NackMessage()


@asynccontextmanager
async def alive(told: StreamMessage[Any], subscriber: Any) -> AsyncIterator[None]:
    """Tell JetStream during the block that the message is in progress."""
    tell = getattr(told, "in_progress", None)
    if tell is None:
        yield
        return
    config = getattr(subscriber, "config", None)
    usual = getattr(config, "ack_wait", None) or jetstream.ConsumerLimits().ack_wait
    async with jetstream.beating(tell, float(min(getattr(config, "backoff", None) or [usual]))):
        yield


# The codec for what a handler returns: values, responses, and no reply.


_MARK: Final = "oncekey.faststream"
_IN_BYTES: Final = _MARK.encode()


class Acked:
    """The handler raised AckMessage: it is done, and nothing is published."""


ACKED: Final = Acked()


class HandlerReplyCodec(Codec):
    """A codec for values of the annotated type, and for a `Response` with its headers."""

    def encode(self, value: object) -> bytes:
        """Return bytes that decode to an equal value.

        Raise NotKeepableError if there are none.
        """
        if isinstance(value, Acked):
            return PLAIN.encode({_MARK: ""})
        if isinstance(value, Response):
            return PLAIN.encode({_MARK: _name(type(value)), "facts": _facts(value)})
        return super().encode(value)

    def decode(self, data: bytes) -> Any:
        """Return a new value for each caller.

        Raise UnreadableBytesError if the bytes do not fit.
        """
        told = PLAIN.decode(data) if _IN_BYTES in data else None
        if not isinstance(told, dict) or _MARK not in told:
            return super().decode(data)
        name = told[_MARK]
        if not name:
            return ACKED
        for kind in _kinds(Response):
            if _name(kind) == name:
                made = _empty(kind)
                vars(made).update(told["facts"])
                return made
        msg = f"FastStream has no {name} here"
        raise UnreadableBytesError(msg)


def _facts(response: Response) -> dict[str, Any]:
    """Return the attributes that differ from the defaults, as only those must be keepable."""
    usual = vars(_empty(type(response)))
    return {
        name: value
        for name, value in vars(response).items()
        if name not in usual or value != usual[name]
    }


def _empty(kind: type[Response]) -> Response:
    try:
        return kind(None)
    except TypeError:
        msg = f"a {kind.__name__} needs more than a body"
        raise NotKeepableError(msg) from None


def _kinds(kind: type[Response]) -> Iterator[type[Response]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


def _name(kind: type[Response]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


# Protection of the messages of one handler, and the answers to FastStream.


_log = logging.getLogger("oncekey")

TransactionBlock = Callable[[], AbstractAsyncContextManager[Any]]
"""A function that returns a context manager with a connection inside a transaction.

The transaction is committed when the block ends.
"""
RunHandler = Callable[[Any, Any], Awaitable[Any]]
"""A function that runs the handler with its delivery, or those of a batch, and the connection."""

DEFAULT_WAIT: Final = "10s"


class _LaterError(Exception):
    """The message cannot be processed now, for a reason outside its handler."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why
        self.seconds = float(getattr(why, "retry_after", 1.0))


class HandlerGuard:
    """An inbox, and the terms on which it processes every message of a handler."""

    def __init__(
        self, inbox: AsyncInbox, transaction: TransactionBlock | None, wait: Duration
    ) -> None:
        """Check everything that can be checked without a message."""
        if not isinstance(inbox, AsyncInbox):
            msg = f"handlers of FastStream need an AsyncInbox, not {inbox!r}"
            raise ConfigurationError(msg)
        if transaction is not None and not callable(transaction):
            msg = (
                f"transaction must be a function that gives an async context manager with a "
                f"connection inside a transaction, not {transaction!r}"
            )
            raise ConfigurationError(msg)
        self.inbox = inbox
        self.transaction = transaction
        self._wait = seconds(wait, "wait", zero=True)
        if transaction is not None:
            inbox.config.tables("transaction=")

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return self.inbox.config.rules.consumer

    def check(self, subscriber: Any) -> None:
        """Raise UnfitError if a subscriber does not fit.

        Log a warning where its broker gives messages up before a lease is over.
        """
        checked(subscriber)
        limit = None if self.transaction else limit_of(subscriber)  # atomic mode has no lease
        if limit is not None:
            self.inbox.config.check_limit(limit)

    def of(self, handler: str) -> HandlerGuard:
        """Return a guard for one of several handlers, which is a consumer of its own."""
        return HandlerGuard(
            self.inbox.for_consumer(f"{self.consumer}/{handler}"), self.transaction, self._wait
        )

    async def reply(
        self,
        told: StreamMessage[Any],
        subscriber: Any,
        codec: Codec,
        run: RunHandler,
        *,
        many: bool = False,
    ) -> Any:
        """Run the handler, or return its first reply. If `many`, run it with a batch.

        Raise an exception of FastStream if the message is to be put back, rejected or acknowledged
        without a reply.
        """
        try:
            self.check(subscriber)
            message = messages_from(told) if many else _limited(message_from(told), subscriber)
        except UnfitError as error:
            _log.error("a subscriber was stopped: %s", error)
            raise
        async with alive(told, subscriber), AsyncExitStack() as stack:
            until = None
            while True:
                try:
                    return await _Try(self, message, codec, run).reply()
                except _LaterError as later:
                    if until is None:
                        patience = waiting(told, subscriber, self._wait)
                        until = monotonic() + await stack.enter_async_context(patience)
                    left = until - monotonic()
                    if left > 0:
                        await pause_async(min(later.seconds, left))
                        continue
                    _log.info("a message was put back: %s", later)
                    raise await put_back(told, subscriber, later.why) from later.why

    @asynccontextmanager
    async def block(
        self, message: Message, codec: Codec
    ) -> AsyncIterator[tuple[AsyncDelivery, Any]]:
        """Claim the message. Yield the delivery and the connection of its transaction, if any."""
        if self.transaction is None:
            async with self.inbox.leased(message, returns=codec) as delivery:
                yield delivery, None
        else:
            async with (
                self.transaction() as connection,
                self.inbox.atomic(connection, message, returns=codec) as delivery,
            ):
                yield delivery, connection


class _Try:
    """One claim of a message, and what came of it."""

    def __init__(
        self,
        guard: HandlerGuard,
        message: Message | list[Message],
        codec: Codec,
        run: RunHandler,
    ) -> None:
        self._guard = guard
        self._message = message
        self._codec = codec
        self._run = run
        self._begun = False
        self._key = ""

    async def reply(self) -> Any:
        try:
            value = await (
                self._many(self._message)
                if isinstance(self._message, list)
                else self._one(self._message)
            )
        except NOT_NOW as error:
            lost = isinstance(error, LeaseLostError) and error.key == self._key
            if self._begun and not lost:  # the error is about a call inside the handler
                raise
            raise _LaterError(error) from error
        except NEVER as error:
            if self._begun:
                raise
            if isinstance(self._message, list):
                _log.error("a batch was put back, since a message of it cannot be used: %s", error)
                raise _LaterError(error) from error
            _log.error("a message was rejected: %s", error)
            raise RejectMessage from error
        except Exception as error:
            if self._guard.transaction is None or not worth_another_try(error):
                raise
            raise _LaterError(error) from error
        if isinstance(value, AckMessage):
            raise value
        return value

    async def _one(self, message: Message) -> Any:
        async with self._guard.block(message, self._codec) as (delivery, connection):
            return await self._value(delivery, connection)

    async def _many(self, messages: list[Message]) -> Any:
        guard = self._guard
        assert guard.transaction is not None  # noqa: S101 - the decorator has checked it
        async with (
            guard.transaction() as connection,
            guard.inbox.atomic_many(connection, messages) as deliveries,
        ):
            self._begun = True
            return await self._run(deliveries, connection)

    async def _value(self, delivery: AsyncDelivery, connection: Any) -> Any:
        """Return the reply, or an AckMessage if there is none."""
        if delivery.duplicate:
            return _first_reply(delivery)
        self._begun, self._key = True, delivery.key
        try:
            value = await self._run(delivery, connection)
        except AckMessage as told:
            await self._complete(delivery, ACKED)
            return told
        if delivery.completed:  # by the handler, in its own transaction
            return delivery.result
        await self._complete(delivery, value)
        return value

    async def _complete(self, delivery: AsyncDelivery, value: object) -> None:
        if delivery.completed:
            return
        try:
            await delivery.complete(value)
        except NotRecordedError:
            # The message is done, but its record is not written yet. If it were delivered again, it
            # might be processed twice.
            return


def _first_reply(delivery: AsyncDelivery) -> Any:
    if delivery.dead:
        _log.warning("a message that failed for good was acknowledged: %s", delivery.key)
        return AckMessage()
    try:
        value = delivery.result
    except (ResultNotKeptError, UnreadableError) as error:
        _log.error("a message was acknowledged without its reply: %s", error)
        return AckMessage()
    return AckMessage() if value is ACKED else value


# The decorator for one handler of FastStream.


F = TypeVar("F", bound=Callable[..., Any])

_PARAMETER: Final = "oncekey_context"
_OURS: Final[tuple[str, ...]] = ("delivery", "deliveries", "connection")
"""Arguments of the handler that the decorator passes, if the handler has them."""


def once_message(
    inbox: AsyncInbox, *, transaction: TransactionBlock | None = None, wait: Duration = DEFAULT_WAIT
) -> Callable[[F], F]:
    """Decorate a handler, below `@broker.subscriber`. Its consumer is the one that the inbox names.

    An argument `delivery` of the handler is the delivery that is processed. `transaction` chooses
    atomic mode; an argument `connection` is then the connection that it gave. `wait` is how long a
    message stays here while it is in progress elsewhere, before it is put back.

    A handler of batches needs `transaction` and an argument `deliveries`, a list with a delivery
    for each message. It runs for every batch, and leaves out what is a duplicate.
    """
    guard = HandlerGuard(inbox, transaction, wait)

    def decorate(function: F) -> F:
        return cast("F", _wrapped(guard, checked_function(function)))

    return decorate


def _wrapped(guard: HandlerGuard, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    wanted = [name for name in _OURS if name in signature.parameters]
    many = "deliveries" in wanted
    if many and guard.transaction is None:
        msg = (
            f"{name_of(function)} has deliveries: a batch needs once_message(..., transaction=...)"
        )
        raise ConfigurationError(msg)
    call = function if is_async(function) else functools.partial(asyncio.to_thread, function)
    codecs: list[HandlerReplyCodec] = []
    warned: list[bool] = []

    @functools.wraps(function)
    async def wrapper(
        *args: Any,
        oncekey_context: ContextRepo | None = None,
        **kwargs: Any,
    ) -> Any:
        message = None if oncekey_context is None else oncekey_context.get("message")
        if oncekey_context is None or message is None:
            if not warned:
                warned.append(True)
                _log.warning("%s runs unprotected: it was not called by FastStream", name)
            return await call(*args, **kwargs)
        if not codecs:  # annotations may name things that are defined after the function
            codecs.append(HandlerReplyCodec(codec_of(function).annotation))

        async def run(delivery: Any, connection: object) -> Any:
            brought = {"delivery": delivery, "deliveries": delivery, "connection": connection}
            kwargs.update({name: brought[name] for name in wanted})
            return await call(*args, **kwargs)

        subscriber = oncekey_context.get("handler_")
        return await guard.reply(message, subscriber, codecs[0], run, many=many)

    name = name_of(function)
    wrapper.__signature__ = _with_context(signature)  # type: ignore[attr-defined]  # functions have it
    return wrapper


def _with_context(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature as FastStream reads it: with its context, without what we pass."""
    given = [one for one in signature.parameters.values() if one.name not in _OURS]
    own = inspect.Parameter(
        _PARAMETER,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[Any, Context("context")],
    )
    at = len(given) - (bool(given) and given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return signature.replace(parameters=[*given[:at], own, *given[at:]])


# The middleware for a broker or a router, which protects every handler below it.


_DELIVERY: Final = "oncekey_delivery"
_CONNECTION: Final = "oncekey_connection"

CurrentDelivery = Annotated[AsyncDelivery, Context(_DELIVERY)]
"""The annotation for an argument of a handler that gets the delivery."""
CurrentConnection = Annotated[Any, Context(_CONNECTION)]
"""The annotation for an argument of a handler that gets the connection of `transaction`."""


class InboxMiddleware:
    """Middleware that processes messages once and gives every duplicate the first reply.

    Each handler is a consumer of its own: that of the inbox, a slash, and the handler's name.
    """

    def __init__(
        self,
        inbox: AsyncInbox,
        *,
        transaction: TransactionBlock | None = None,
        wait: Duration = DEFAULT_WAIT,
        outbox: AsyncOutbox | None = None,
    ) -> None:
        """Check the options.

        `transaction` chooses atomic mode: it gives a connection inside a transaction. `wait` is how
        long a message stays here while it is in progress elsewhere, before it is put back. With
        `outbox` a reply is not published, but put there in the transaction of its handler, and a
        relay sends it to where the publisher would have.
        """
        self._guard = HandlerGuard(inbox, transaction, wait)
        if outbox is not None:
            _check_outbox(outbox, transaction)
        self._outbox = outbox
        self._known: dict[Callable[..., Any], tuple[HandlerGuard, HandlerReplyCodec]] = {}

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware[Any, Any]:
        """Return the middleware for one message, as FastStream asks for it."""
        return _OneMessage(msg, context=context, known=self.known, outbox=self._outbox)

    def check(self, broker: Any) -> None:
        """Raise UnfitError now, and not at the first message, if a subscriber does not fit.

        Log a warning where the broker gives messages up before a lease is over.
        """
        for subscriber in broker.subscribers:
            self._guard.check(subscriber)
            if self._outbox is not None:
                _check_replies(subscriber)

    def known(self, handler: Callable[..., Any]) -> tuple[HandlerGuard, HandlerReplyCodec]:
        """Return the guard for messages of the handler, and the codec for its replies."""
        found = self._known.get(handler)
        if found is None:
            codec = HandlerReplyCodec(codec_of(handler).annotation)
            found = self._guard.of(scope_of(inspect.unwrap(handler))), codec
            self._known[handler] = found
        return found


class _OneMessage(BaseMiddleware[Any, Any]):
    def __init__(
        self,
        msg: Any,
        /,
        *,
        context: ContextRepo,
        known: Callable[[Callable[..., Any]], tuple[HandlerGuard, HandlerReplyCodec]],
        outbox: AsyncOutbox | None,
    ) -> None:
        super().__init__(msg, context=context)
        self._of = known
        self._outbox = outbox
        self._kept = False
        """Whether the reply is in the outbox, and not to be published here."""

    async def consume_scope(self, call_next: Callable[[Any], Any], msg: StreamMessage[Any]) -> Any:
        wrapper = _wrapper_of(call_next)
        handler = _handler_of(wrapper)
        if handler is None:  # a request for a message or a reply, which waits for it
            return await call_next(msg)
        guard, codec = self._of(handler)

        async def run(delivery: AsyncDelivery, connection: object) -> Any:
            with (
                self.context.scope(_DELIVERY, delivery),
                self.context.scope(_CONNECTION, connection),
            ):
                value = await call_next(msg)
            if self._outbox is not None:
                reply = ensure_response(delivery.result if delivery.completed else value)
                reply.correlation_id = reply.correlation_id or msg.correlation_id
                kept = _ReplyToKeep(self._outbox, connection, delivery, reply)
                await kept.keep(getattr(wrapper, "_publishers", ()))
            return value

        subscriber = self.context.get("handler_")
        if self._outbox is not None:
            _check_replies(subscriber)
            self._kept = True  # that of a duplicate was kept the first time
        return await guard.reply(msg, subscriber, codec, run)

    async def publish_scope(self, call_next: Callable[[Any], Any], cmd: PublishCommand) -> Any:
        if self._kept and cmd.publish_type is not PublishType.REPLY:
            return None
        return await call_next(cmd)


def _check_outbox(outbox: object, transaction: object) -> None:
    if not isinstance(outbox, AsyncOutbox):
        raise ConfigurationError(f"replies are kept in an AsyncOutbox, not in {outbox!r}")
    if transaction is None:
        msg = "a reply is kept in the transaction of its handler: give transaction= with outbox="
        raise ConfigurationError(msg)


def _check_replies(subscriber: Any) -> None:
    """Raise UnfitError if a relay cannot send replies as the subscriber's broker does."""
    if type(subscriber).__module__.startswith("faststream.redis."):
        msg = (
            "FastStream writes entries of Redis in a format of its own, which a relay does not: "
            "put replies into the outbox yourself, in a router without InboxMiddleware(outbox=...)"
        )
        raise UnfitError(msg)


class _ReplyToKeep:
    """What a handler has returned, for the outbox instead of its publishers."""

    def __init__(
        self, outbox: AsyncOutbox, connection: object, delivery: AsyncDelivery, reply: Response
    ) -> None:
        self._outbox = outbox
        self._connection = connection
        self._delivery = delivery
        self._reply = reply

    async def keep(self, publishers: Sequence[Any]) -> None:
        """Put in what each of the publishers would publish."""
        for number, publisher in enumerate(publishers, 1):
            put = functools.partial(self._put, number)
            await publisher._publish(self._reply.as_publish_command(), _extra_middlewares=[put])

    async def _put(self, number: int, publish: Callable[[Any], Any], command: Any) -> None:
        """Put one in. This is called instead of the broker's producer, with its command."""
        producer = getattr(publish, "__self__", None)
        codec = getattr(producer, "codec", None)
        serializer = getattr(producer, "serializer", None) or PydanticSerializer()
        body, kind = (
            await codec.encode(command.body, serializer)
            if codec is not None
            else encode_message(command.body, serializer)
        )
        own = getattr(command, "headers_to_publish", None)
        headers = own() if own else {"correlation_id": command.correlation_id, **command.headers}
        key = getattr(command, "key", None)
        await self._outbox.put(
            self._connection,
            Message(
                id=f"reply {number}", attributes={"content-type": kind or "", **headers}, body=body
            ),
            to=command.destination,
            key=key.decode() if isinstance(key, bytes) else key,
            sender=self._delivery,
        )


def _wrapper_of(call_next: Any) -> Any:
    """Return what FastStream has made of a handler, behind the middlewares around it, or None."""
    while isinstance(call_next, functools.partial):
        call_next = call_next.args[0]
    return getattr(call_next, "__self__", None)


def _handler_of(wrapper: Any) -> Callable[..., Any] | None:
    """Return the function of the handler, or None if this is none."""
    found: Callable[..., Any] | None = getattr(wrapper, "_original_call", None)
    theirs = getattr(found, "__module__", "").startswith("faststream.")  # of its test brokers
    return None if theirs else found


__all__ = ["CurrentConnection", "CurrentDelivery", "InboxMiddleware", "once_message"]
