"""Middleware for Django, for views of both kinds, and a decorator for those that claim themselves.

    MIDDLEWARE = [..., "oncekey.http.django.IdempotencyMiddleware"]
    ONCEKEY = {"store": "redis://localhost:6379/0", "scope": "oncekey.http.by_user"}

A request that is not covered goes through untouched. A covered one is read whole, and its response
is held back until the record says how it ended: no client hears "done" before.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from oncekey.extras import needing

with needing("django", __name__):
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
    from django.conf import settings  # type: ignore[import-untyped]  # Django brings no types
    from django.core.signals import (  # type: ignore[import-untyped]  # Django brings no types
        got_request_exception,
    )

    from oncekey.http import django_exchange, django_exchange_async
    from oncekey.http.django_claimed import claimed, middleware_is_there
    from oncekey.http.django_exchange import Exchange
    from oncekey.http.django_exchange_async import AsyncExchange
    from oncekey.http.django_request import PLACE, DjangoRequest, DjangoResponse
    from oncekey.http.django_settings import rules_of

_log = logging.getLogger("oncekey")

__all__ = ["IdempotencyMiddleware", "claimed"]


class IdempotencyMiddleware:
    """Makes requests that arrive twice happen once, as the setting `ONCEKEY` says.

    With `"claim": "handler"` nothing is claimed before a view that is `claimed` says whose request
    it is; the middleware then only holds the response back.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[DjangoRequest], Any]) -> None:
        """Every setting is checked now, and nothing is opened."""
        self.get_response: Final = get_response
        self.rules: Final = rules_of(getattr(settings, "ONCEKEY", {}))
        self._awaits = iscoroutinefunction(get_response)
        self._running: set[asyncio.Task[DjangoResponse]] = set()
        if self._awaits:
            markcoroutinefunction(self)
        middleware_is_there()

    def __call__(self, request: DjangoRequest) -> Any:  # noqa: ANN401 - a response, or one to await
        """The view has answered, now or before."""
        if self._awaits:
            return self._call_async(request)
        begun = django_exchange.begin(self.rules, request)
        if begun is None:
            return self.get_response(request)
        return begun.run(self.get_response) if isinstance(begun, Exchange) else begun

    async def _call_async(self, request: DjangoRequest) -> DjangoResponse:
        begun = await django_exchange_async.begin(self.rules, request)
        if begun is None:
            return await self.get_response(request)
        if isinstance(begun, AsyncExchange):
            return await self._to_the_end(begun.run(self.get_response))
        return begun

    async def _to_the_end(self, running: Coroutine[Any, Any, DjangoResponse]) -> DjangoResponse:
        """The view runs to its end, also when its client is gone.

        Django cancels us then and waits. It takes the request apart as soon as we return, with the
        thread on which views that block are running, so we return when the view is done.
        """
        task = asyncio.ensure_future(running)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_of_failure)
            await asyncio.wait([task])  # who cancels us again means it
            if not task.cancelled() and task.exception() is None:
                await sync_to_async(task.result().close)()
            raise

    def process_exception(self, request: DjangoRequest, exception: Exception) -> None:
        """Another middleware may make a response of it, so that nobody else would hear of it."""
        _note(request, exception)


def _note(request: object, error: BaseException | None) -> None:
    exchange: Exchange | AsyncExchange | None = getattr(request, PLACE, None)
    if exchange is not None:
        exchange.error = error


def _note_unhandled(request: object = None, **_: object) -> None:
    """Also what a middleware inside has raised is known, and not only what a view has."""
    _note(request, sys.exc_info()[1])


got_request_exception.connect(_note_unhandled, dispatch_uid="oncekey")


def _tell_of_failure(task: asyncio.Task[DjangoResponse]) -> None:
    """Nobody else would hear of it."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("a request failed after its client had gone", exc_info=task.exception())
