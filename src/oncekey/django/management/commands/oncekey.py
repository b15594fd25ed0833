"""`manage.py oncekey`: the command line, on the store that the setting `ONCEKEY` names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from django.conf import settings  # type: ignore[import-untyped]  # Django brings no types
from django.core.management.base import (  # type: ignore[import-untyped]  # Django brings no types
    BaseCommand,
    CommandError,
)
from django.utils.module_loading import (  # type: ignore[import-untyped]  # Django brings no types
    import_string,
)

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.stores.django import DjangoStore, url_of


class Command(BaseCommand):  # type: ignore[misc]  # Django brings no types
    """Run `oncekey` with the words that follow."""

    help = "Look at the records of the store, and change them by hand. See `oncekey --help`."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Leave all words to the command line, which has options of its own."""
        try:
            words = _store()
            with needing("cli", "manage.py oncekey"):
                from oncekey.cli.program import program
        except ConfigurationError as error:
            sys.stderr.write(f"oncekey: {error}\n")
            sys.exit(2)
        program(terminal=sys.stdout.isatty())(args=[*words, *argv[2:]], prog_name="oncekey")

    def handle(self, *_words: Any, **_options: Any) -> None:
        """Refuse to be called by code."""
        msg = "call_command cannot run oncekey; use the methods of Once"
        raise CommandError(msg)


def _store() -> list[str]:
    """Return the option that names the store of the setting, or nothing if it names none."""
    setting = getattr(settings, "ONCEKEY", {})
    said: Mapping[str, Any] = setting if isinstance(setting, Mapping) else {}
    once = said.get("once")
    if isinstance(once, str):
        once = import_string(once)
    store = said.get("store") if once is None else once.core.given
    if isinstance(store, DjangoStore):
        return ["--store", url_of(store.alias)]
    if isinstance(store, str) and store.startswith("django:"):
        return ["--store", url_of(store.partition("//")[2] or "default")]
    return ["--store", store] if isinstance(store, str) else []
