"""Kafka: a message is sent when all replicas that are in sync have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from oncekey.compat import call_blocking_async
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.messages.message import OUTBOX_ID
from oncekey.outbox.errors import MessageRefusedError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import end_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_POLL: Final = 0.2
_REFUSED: Final = (
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_MSG",
    "INVALID_RECORD",
    "MSG_SIZE_TOO_LARGE",
    "POLICY_VIOLATION",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
)
_OUT_OF_REACH: Final = (
    "_ALL_BROKERS_DOWN",
    "_FATAL",
    "_MSG_TIMED_OUT",
    "_PURGE_INFLIGHT",
    "_PURGE_QUEUE",
    "_TIMED_OUT",
    "_TRANSPORT",
)


class Kafka:
    """Sends to topics, with the key of the message as the key of the record.

    The producer is idempotent and waits for all replicas that are in sync. The id is the header
    `oncekey-id`, by which `from_kafka` and `from_confluent` know what an inbox has seen. Kafka
    itself compares no ids.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any] | None = None) -> None:
        """Remember the addresses of brokers and further settings of librdkafka.

        Raise ConfigurationError if librdkafka does not know them.
        """
        with needing("kafka", "Kafka"):
            from confluent_kafka import KafkaException, Producer
        self._settings = {
            "topic.metadata.propagation.max.ms": 3000,
            **(settings or {}),
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "acks": "all",
            "error_cb": self._heard,
        }
        try:
            Producer(self._settings)  # to check them; a relay makes its own
        except KafkaException as error:
            msg = f"librdkafka does not take these settings: {error.args[0].str()}"
            raise ConfigurationError(msg) from None
        self._turn = Lock()
        self._producer: Producer | None = None
        self._why = ""
        """What the client has complained of last."""

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the messages. Return None for each that the brokers have confirmed, or an error."""
        return await call_blocking_async(self._publish, messages, end_of(deadline))

    async def aclose(self) -> None:
        """Close the connections. The next message opens new ones."""
        await call_blocking_async(self._close)

    def _publish(self, messages: Sequence[OutboxMessage], end: float) -> list[BaseException | None]:
        from confluent_kafka import KafkaException, Producer

        if not self._turn.acquire(timeout=max(0.0, end - monotonic())):
            return [TimeoutError("the client is still busy")] * len(messages)
        try:
            if self._producer is None:
                self._producer = Producer(self._settings)
            answers: dict[int, BaseException | None] = {}
            for number, message in enumerate(messages):
                try:
                    self._producer.produce(
                        message.to,
                        message.body,
                        None if message.key is None else message.key.encode(),
                        headers=_headers(message),
                        on_delivery=partial(self._delivered, answers, number),
                    )
                except KafkaException as error:
                    answers[number] = self._meant(error.args[0])
            while len(answers) < len(messages) and monotonic() < end:
                self._producer.poll(min(_POLL, max(0.0, end - monotonic())))
            found = [answers.get(number, self._late()) for number in range(len(messages))]
            if len(answers) < len(messages):
                self._close()  # what waits in the client must not be sent when nobody looks
            return found
        finally:
            self._turn.release()

    def _delivered(
        self,
        answers: dict[int, BaseException | None],
        number: int,
        error: KafkaError | None,
        _: object,
    ) -> None:
        answers[number] = None if error is None else self._meant(error)

    def _meant(self, error: KafkaError) -> BaseException:
        """Return the error as a relay understands it."""
        from confluent_kafka import KafkaException

        if error.fatal():
            self._producer = None  # it takes nothing any more
        elif error.name() in _REFUSED:
            return MessageRefusedError(f"Kafka refused it: {error.str()}")
        if error.fatal() or error.retriable() or error.name() in _OUT_OF_REACH:
            return ConnectionError(f"Kafka cannot take it now: {error.str()}")
        return KafkaException(error)

    def _late(self) -> ConnectionError:
        why = f": {self._why}" if self._why else ""
        return ConnectionError(f"Kafka has not confirmed it in time{why}")

    def _heard(self, error: KafkaError) -> None:
        self._why = error.str()

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)


def _headers(message: OutboxMessage) -> dict[str, str | bytes | None]:
    headers: dict[str, str | bytes | None] = {
        name: str(value) for name, value in message.attributes.items()
    }
    if message.type:
        headers.setdefault("type", message.type)
    return {**headers, OUTBOX_ID: message.id}
