"""A project with one view, asked without a server, through either of Django's handlers."""

import asyncio
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.http import JsonResponse  # type: ignore[import-untyped]  # Django brings no types
from django.test import (  # type: ignore[import-untyped]  # Django brings no types
    AsyncClient,
    Client,
    override_settings,
)
from django.urls import path  # type: ignore[import-untyped]  # Django brings no types

from oncekey import Once
from oncekey.core.requests import Scan
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore
from tests.http.django_project import OURS

KEYED = {"Idempotency-Key": "k"}


class Shop:
    """Settings, a view, and all that a test wants to see of them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.store = FaultyStore(MemoryStore())
        self.once = Once(self.store, observers=[])  # type: ignore[arg-type]  # its verbs are made at run time
        self.runs: list[Any] = []

    def open(self, view: Callable[..., Any], *, around: Any = (), within: Any = (), **said: Any):
        """Settings under which every request goes to the view, which is counted."""

        def counted(request):
            self.runs.append(request)
            return view(request)

        async def counted_async(request):
            self.runs.append(request)
            return await view(request)

        pick = counted_async if asyncio.iscoroutinefunction(view) else counted

        class Urls:
            urlpatterns = (path("", pick),)

        return override_settings(
            ROOT_URLCONF=Urls,
            MIDDLEWARE=[*around, OURS, *within],
            ONCEKEY={"once": self.once, "scope": None, **said},
        )

    def post(self, data: Any = None, *, raises: bool = False, key: str = "k", **more: Any) -> Any:
        more.setdefault("headers", {})["Idempotency-Key"] = key
        if "content_type" not in more and data is None:
            data, more["content_type"] = {"item": "tea"}, "application/json"
        if self.kind == "wsgi":
            return Client(raise_request_exception=raises).post("/", data, **more)
        client = AsyncClient(raise_request_exception=raises)

        async def ask() -> Any:
            return await client.post("/", data, **more)

        return async_to_sync(ask)()

    def record(self) -> Any:
        (record,) = self.store.store.scan(Scan()).records
        return record


def number(shop: Shop) -> Callable[..., JsonResponse]:
    """A view that tells which run it is."""
    return lambda _request: JsonResponse({"run": len(shop.runs)})
