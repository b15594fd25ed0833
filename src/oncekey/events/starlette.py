"""A response of Starlette and FastAPI that streams the events of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from oncekey.errors import ConfigurationError
from oncekey.events.gateway import Gateway, Receive, Scope, Send

if TYPE_CHECKING:
    from starlette.background import BackgroundTask

_OURS: Final = (b"content-type", b"content-length", b"cache-control", b"x-accel-buffering")
"""Headers that a stream must have as the gateway sends them."""


class EventResponse(Response):
    """The response of an endpoint that has checked that its caller may watch the job."""

    media_type = "text/event-stream"

    def __init__(
        self,
        gateway: Gateway,
        job: str,
        *,
        headers: Mapping[str, str] | None = None,
        background: BackgroundTask | None = None,
    ) -> None:
        """Take the gateway and the job. The gateway's `allow` is not called.

        Headers and cookies are sent as with any other response. The background task runs after the
        client has disconnected.
        """
        if not isinstance(gateway, Gateway):
            raise ConfigurationError(f"an EventResponse takes a Gateway, not {gateway!r}")
        super().__init__(headers=headers, background=background)
        self._gateway = gateway
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects."""
        own = [one for one in self.raw_headers if one[0] not in _OURS]
        await self._gateway.stream(self._job, scope, receive, send, headers=own)
        if self.background is not None:
            await self.background()
