"""Where a relay sends messages to. What is sent counts as sent when the target has confirmed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from os import environ
from typing import Any, Final
from urllib.parse import parse_qsl

from oncekey.errors import ConfigurationError
from oncekey.outbox.errors import MessageRefusedError, NotConfirmedError, UndeliverableError
from oncekey.outbox.targets.base import Target
from oncekey.outbox.targets.celery import CeleryTasks
from oncekey.outbox.targets.dramatiq import DramatiqActors
from oncekey.outbox.targets.events import EventBus
from oncekey.outbox.targets.function import FunctionTarget
from oncekey.outbox.targets.jetstream import JetStream
from oncekey.outbox.targets.kafka import Kafka
from oncekey.outbox.targets.rabbitmq import RabbitMQ
from oncekey.outbox.targets.redis_streams import RedisStreams
from oncekey.outbox.targets.rq import RQJobs
from oncekey.outbox.targets.taskiq import TaskiqTasks
from oncekey.outbox.targets.webhook import Endpoint, Webhook

__all__ = [
    "CeleryTasks",
    "DramatiqActors",
    "Endpoint",
    "EventBus",
    "FunctionTarget",
    "JetStream",
    "Kafka",
    "MessageRefusedError",
    "NotConfirmedError",
    "RQJobs",
    "RabbitMQ",
    "RedisStreams",
    "Target",
    "TaskiqTasks",
    "UndeliverableError",
    "Webhook",
    "target_of",
]


def target_of(url: str) -> Target:
    """Return the target that a URL stands for.

    | URL | target |
    |---|---|
    | `nats://`, `tls://` | subjects of JetStream |
    | `amqp://`, `amqps://` | queues of RabbitMQ |
    | `redis://`, `rediss://` | streams of Redis |
    | `kafka://one:9092,two:9092?client.id=shop` | topics of Kafka, with settings of librdkafka |
    | `http://`, `https://` | a webhook, with the secret in `$ONCEKEY_WEBHOOK_SECRET` |
    | `celery://shop.jobs:app` | tasks of an app of Celery |
    | `dramatiq://shop.jobs:broker`, `taskiq://shop.jobs:broker` | actors or tasks of a broker |
    | `rq+redis://localhost/0#mail` | jobs in a queue of RQ, else in `default` |

    Raise ConfigurationError for another one.
    """
    scheme = url.partition("://")[0]
    made = _SCHEMES.get(scheme)
    if made is None:
        msg = (
            f"messages are sent to amqp://, celery://, dramatiq://, https://, kafka://, nats://, "
            f"redis://, rq+redis:// or taskiq://, not to {scheme}://"
        )
        raise ConfigurationError(msg)
    return made(url)


def _kafka(url: str) -> Target:
    servers, _, settings = url.removeprefix("kafka://").partition("?")
    return Kafka(servers, dict(parse_qsl(settings)))


def _rq(url: str) -> Target:
    where, _, queue = url.removeprefix("rq+").partition("#")
    return RQJobs(where, queue=queue or "default")


def _webhook(url: str) -> Target:
    secret, networks = (environ.get(name, "").split() for name in (_SECRET, _NETWORKS))
    if not secret:
        msg = f"a webhook is signed: set ${_SECRET} to its secret, as in whsec_..."
        raise ConfigurationError(msg)
    return Webhook(url, secret, networks=networks)


_SECRET: Final = "ONCEKEY_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
_NETWORKS: Final = "ONCEKEY_WEBHOOK_NETWORKS"


def _loaded(url: str) -> Any:
    """Return the object that is named as in `celery://shop.jobs:app`."""
    module, _, attribute = url.partition("://")[2].partition(":")
    if not module or not attribute:
        msg = f"{url!r} must name a module and an object in it, as celery://shop.jobs:app does"
        raise ConfigurationError(msg)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{url!r} cannot be loaded: {error}") from error


_SCHEMES: Final[Mapping[str, Callable[[str], Target]]] = {
    "amqp": RabbitMQ,
    "amqps": RabbitMQ,
    "celery": lambda url: CeleryTasks(_loaded(url)),
    "dramatiq": lambda url: DramatiqActors(_loaded(url)),
    "http": _webhook,
    "https": _webhook,
    "kafka": _kafka,
    "nats": JetStream,
    "redis": RedisStreams,
    "rediss": RedisStreams,
    "rq+redis": _rq,
    "rq+rediss": _rq,
    "taskiq": lambda url: TaskiqTasks(_loaded(url)),
    "tls": JetStream,
}
