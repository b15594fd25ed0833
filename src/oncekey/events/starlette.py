"""A response of Starlette and FastAPI that streams the events of a job."""

from __future__ import annotations

from starlette.responses import Response

from oncekey.events.gateway import Gateway, Receive, Scope, Send


class EventResponse(Response):
    """The response of an endpoint that has checked that its caller may watch the job."""

    media_type = "text/event-stream"

    def __init__(self, gateway: Gateway, job: str) -> None:
        """Take the gateway and the job. The gateway's `allow` is not called."""
        super().__init__()
        self._gateway = gateway
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects."""
        await self._gateway.stream(self._job, scope, receive, send)
