"""The configuration of the application."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from django.apps import AppConfig  # type: ignore[import-untyped]  # Django brings no types
from django.conf import settings  # type: ignore[import-untyped]  # Django brings no types

_MIDDLEWARE: Final = "oncekey.http.django"


class OncekeyConfig(AppConfig):  # type: ignore[misc]  # Django brings no types
    """Oncekey in a Django project."""

    name = "oncekey.django"
    label = "oncekey"
    verbose_name = "Oncekey"

    def ready(self) -> None:
        """Let `manage.py check` look at the setting of the middleware, where that is used."""
        if f"{_MIDDLEWARE}.IdempotencyMiddleware" in settings.MIDDLEWARE:
            import_module(_MIDDLEWARE)
