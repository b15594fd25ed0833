"""Where a relay sends messages to. What is sent counts as sent when the target has confirmed it."""

from oncekey.errors import ConfigurationError
from oncekey.outbox.errors import MessageRefusedError, NotConfirmedError, UndeliverableError
from oncekey.outbox.targets.base import Target
from oncekey.outbox.targets.function import FunctionTarget
from oncekey.outbox.targets.jetstream import JetStream
from oncekey.outbox.targets.rabbitmq import RabbitMQ
from oncekey.outbox.targets.redis_streams import RedisStreams
from oncekey.outbox.targets.webhook import Endpoint, Webhook

__all__ = [
    "Endpoint",
    "FunctionTarget",
    "JetStream",
    "MessageRefusedError",
    "NotConfirmedError",
    "RabbitMQ",
    "RedisStreams",
    "Target",
    "UndeliverableError",
    "Webhook",
    "target_of",
]


def target_of(url: str) -> Target:
    """Return the target that a URL stands for.

    `nats://` or `tls://` is for subjects of JetStream, `amqp://` or `amqps://` for queues of
    RabbitMQ, `redis://` or `rediss://` for streams. Raise ConfigurationError for another one.
    """
    scheme = url.partition("://")[0]
    if scheme in ("nats", "tls"):
        return JetStream(url)
    if scheme in ("amqp", "amqps"):
        return RabbitMQ(url)
    if scheme in ("redis", "rediss"):
        return RedisStreams(url)
    msg = f"messages are sent to amqp://, nats:// or redis://, not to {scheme}://"
    raise ConfigurationError(msg)
