"""The setting `ONCEKEY`: what it may hold, and the check that `manage.py` makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings  # type: ignore[import-untyped]  # Django brings no types
from django.core import checks  # type: ignore[import-untyped]  # Django brings no types
from django.utils.module_loading import (  # type: ignore[import-untyped]  # Django brings no types
    import_string,
)

from oncekey.errors import ConfigurationError
from oncekey.http.profiles import PROFILES
from oncekey.http.protocol import Rules
from oncekey.once import Once

# What settings can only name, because the code is not there yet when they are read.
_NAMES: Final = ("once", "profile", "scope", "when", "reconcile", "policy")
_opened: dict[str, Any] = {}


def rules_of(setting: object) -> Rules:
    """The rules that the setting means; ConfigurationError when it is wrong."""
    if not isinstance(setting, Mapping):
        msg = f"ONCEKEY must be a dict such as {{'store': 'redis://...'}}, but it is {setting!r}"
        raise ConfigurationError(msg)
    try:
        given = {name: _meant(name, value) for name, value in setting.items()}
        return Rules(_once(given), **given)
    except ConfigurationError as error:
        msg = f"ONCEKEY is wrong: {error}"
        raise ConfigurationError(msg) from None


def _meant(name: object, value: object) -> Any:  # noqa: ANN401 - which the rules check
    """The value, or what it names."""
    if not isinstance(name, str):
        msg = f"there is no setting {name!r}; see oncekey.http.Settings"
        raise ConfigurationError(msg)
    if name in _NAMES:
        return _named(name, value)
    if name == "uncertain" and isinstance(value, (str, list, tuple)):
        return tuple(_named(name, one) for one in ([value] if isinstance(value, str) else value))
    return value


def _named(name: str, value: object) -> Any:  # noqa: ANN401 - see above
    if not isinstance(value, str) or value in PROFILES or value.startswith("/"):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        msg = f"{name} names {value!r}, which cannot be imported: {error}"
        raise ConfigurationError(msg) from None


def _once(given: dict[str, Any]) -> Once | None:
    """The `Once` that is given, or the one of the store: the same for all who name that store."""
    if "once" in given:
        if "store" in given or "prefix" in given:
            raise ConfigurationError("store and prefix belong to a Once: give those, or once")
        once: Once | None = given.pop("once")
        return once
    place = {"store": given.pop("store", None), "prefix": given.pop("prefix", None)}
    if _opened.get("place") != place:
        _opened.update(once=Once(**place), place=place)
    return _opened["once"]  # type: ignore[no-any-return]  # it was put there above


@checks.register  # type: ignore[untyped-decorator]  # Django brings no types
def check(**_: object) -> list[checks.CheckMessage]:
    """What is wrong with the setting, in one sentence."""
    try:
        rules_of(getattr(settings, "ONCEKEY", {}))
    except ConfigurationError as error:
        return [checks.Error(str(error), id="oncekey.E001")]
    return []
