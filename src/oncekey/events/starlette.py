"""The events of a job as a response of Starlette and FastAPI."""

from __future__ import annotations

from starlette.responses import Response

from oncekey.events.gateway import Gateway, Receive, Scope, Send


class EventResponse(Response):
    """What an endpoint returns that has made sure that its caller may watch the job."""

    media_type = "text/event-stream"

    def __init__(self, gateway: Gateway, job: str) -> None:
        """`gateway` is not asked whether it allows this."""
        super().__init__()
        self._gateway = gateway
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The response is sent until the client has gone."""
        await self._gateway.stream(self._job, scope, receive, send)
