"""HTTP: a message is sent when the receiver of the webhook has answered with a 2xx."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.http.signatures import StandardSignature
from oncekey.outbox.errors import (
    MessageRefusedError,
    NotConfirmedError,
    UndeliverableError,
)
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import called_with, one_by_one

if TYPE_CHECKING:
    import httpcore
    import httpx

PAUSES: Final = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0)
"""Seconds after each failure: eight tries in 27 hours and 35 minutes."""
_CONNECTIONS: Final = 100
_IDLE: Final = 5.0
_LONGEST_DRAIN: Final = 1.0
_GONE: Final = 410


@dataclass(frozen=True)
class Endpoint:
    """Where a webhook goes, and the secret that signs it.

    While a secret is being replaced there are two, and each of them signs. `headers` go with every
    webhook, for example those of a password.
    """

    url: str
    secret: str | Sequence[str] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    signature: StandardSignature = field(init=False, repr=False, compare=False)
    target: httpx.URL = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check what was given. Raise ConfigurationError, without secrets, if it cannot be used."""
        object.__setattr__(self, "signature", StandardSignature(self.secret))
        object.__setattr__(self, "target", _url(self.url))


Endpoints = Callable[[OutboxMessage], Endpoint | Awaitable[Endpoint]]


class Webhook:
    """Sends the body in a POST request that is signed as Standard Webhooks are.

    `webhook-id` is the id of the message. Every failure counts. The tries are spread over 28 hours,
    a `Retry-After` of the receiver makes a pause longer, and a 410 makes the message dead at once.
    Redirects are not followed, and what the receiver answers is neither read nor kept.

    It sends to public addresses only. A name is resolved once for a connection, which is made to an
    address that was checked.
    """

    pauses = PAUSES

    def __init__(
        self,
        endpoint: str | Endpoints,
        secret: str | Sequence[str] = "",
        *,
        networks: Iterable[str] = (),
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Take the URL and its secret, or a function that returns the `Endpoint` for a message.

        The function may be a coroutine function. It raises UndeliverableError if a message has no
        endpoint any more. `networks` are networks that are not public and may be reached all the
        same, as in `["10.1.0.0/16"]`.
        """
        with needing("http", "webhooks"):
            import httpcore
            import httpx  # noqa: F401 - it reads URLs

            from oncekey.outbox.targets.networks import Networks, PinnedBackend
        self._endpoint: Endpoint | None = None
        self._find: Any = None
        if isinstance(endpoint, str):
            self._endpoint = Endpoint(endpoint, secret)
        elif callable(endpoint):
            self._find = endpoint
        else:
            msg = (
                f"a webhook goes to a URL, or to what a function returns for a message, not to "
                f"{endpoint!r}"
            )
            raise ConfigurationError(msg)
        backend = PinnedBackend(Networks(networks))

        def pool() -> httpcore.AsyncConnectionPool:
            return httpcore.AsyncConnectionPool(
                ssl_context,
                max_connections=_CONNECTIONS,
                keepalive_expiry=_IDLE,
                network_backend=backend,
            )

        self._new_pool = pool
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the messages. Return None for each that was answered with a 2xx, or an error."""
        begun: set[int] = set()

        async def publish(message: OutboxMessage) -> None:
            begun.add(id(message))
            await self._post(message, deadline)

        answers = await one_by_one(publish, messages, deadline)
        return [
            _meant(answer) if id(message) in begun else answer
            for message, answer in zip(messages, answers, strict=True)
        ]

    async def aclose(self) -> None:
        """Close the connections. The next message opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _post(self, message: OutboxMessage, deadline: float) -> None:
        import httpcore

        endpoint = self._endpoint or await called_with(message, self._find)
        if not isinstance(endpoint, Endpoint):
            msg = (
                f"the endpoint of {message.to!r} must be an Endpoint, not {type(endpoint).__name__}"
            )
            raise MessageRefusedError(msg)
        if self._pool is None:
            self._pool = self._new_pool()
        url = endpoint.target
        request = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        patience = dict.fromkeys(("connect", "read", "write", "pool"), deadline - monotonic())
        async with self._pool.stream(
            "POST",
            request,
            headers=_headers(message, endpoint),
            content=message.body,
            extensions={"timeout": patience},
        ) as response:
            _check(response)
            with suppress(Exception):  # an empty answer lets the connection be used again
                async with asyncio.timeout(_LONGEST_DRAIN):
                    await _drained(response)


async def _drained(response: httpcore.Response) -> None:
    """Read an answer to its end, if it says that it has none."""
    if (b"content-length", b"0") in [(name.lower(), value) for name, value in response.headers]:
        await response.aread()


def _url(text: object) -> httpx.URL:
    with needing("http", "webhooks"):
        import httpx
    try:
        url = httpx.URL(text if isinstance(text, str) else "")
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"the URL of a webhook cannot be read: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        msg = f"the URL of a webhook begins with https:// and has a host, not {url.scheme}://"
        raise ConfigurationError(msg)
    if url.userinfo:
        msg = f"the URL of {url.host} has a password in it; put it into Endpoint(headers=...)"
        raise ConfigurationError(msg)
    return url


def _headers(message: OutboxMessage, endpoint: Endpoint) -> list[tuple[str, str]]:
    try:
        signed = endpoint.signature.sign(message.id, message.body, time.time())
    except ConfigurationError as error:
        raise UndeliverableError(str(error)) from error
    kind = str(message.attributes.get("content-type") or "application/json")
    fixed = {"host": endpoint.target.netloc.decode(), "user-agent": "oncekey", "content-type": kind}
    given = {name.lower(): value for name, value in endpoint.headers.items()}
    length = {"content-length": str(len(message.body))}
    return [*{**fixed, **given, **signed, **length}.items()]


def _check(response: httpcore.Response) -> None:
    """Raise what the status of an answer means, unless it is a 2xx."""
    status = response.status
    if 200 <= status < 300:  # noqa: PLR2004 - as RFC 9110 has them
        return
    if status == _GONE:
        raise UndeliverableError("the receiver answered 410: it wants no webhooks any more")
    if 300 <= status < 400:  # noqa: PLR2004 - as above
        msg = f"the receiver answered {status}, and redirects are not followed; change its URL"
        raise MessageRefusedError(msg)
    kind = MessageRefusedError if status < 500 else NotConfirmedError  # noqa: PLR2004 - as above
    raise kind(f"the receiver answered {status}", retry_after=_retry_after(response))


def _retry_after(response: httpcore.Response) -> float:
    """Return for how many seconds the receiver wants to be left alone; 0 if it does not say."""
    said = next((v for name, v in response.headers if name.lower() == b"retry-after"), b"")
    if said.isdigit():
        return float(said[:9])
    try:
        moment = parsedate_to_datetime(said.decode("latin-1"))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time.time()


def _meant(error: BaseException | None) -> BaseException | None:
    """Return the error as a relay understands it. No receiver is ever out of reach for others."""
    import httpcore

    if error is None or isinstance(error, NotConfirmedError):
        return error
    if isinstance(error, (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)):
        return MessageRefusedError(f"the receiver cannot be reached: {str(error) or 'no answer'}")
    if isinstance(error, (TimeoutError, httpcore.TimeoutException)):
        return NotConfirmedError("the receiver did not answer in time")
    if isinstance(error, (httpcore.NetworkError, httpcore.ProtocolError, OSError)):
        return NotConfirmedError(f"the connection broke before the answer: {error!r}")
    return error
