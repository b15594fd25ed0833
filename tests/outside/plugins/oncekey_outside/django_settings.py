"""Django's own settings for SQLite, and ours."""

from test_sqlite import *  # type: ignore[import-not-found]  # noqa: F403 - a module of Django's tests

from .mode import WRITES, store

ONCEKEY = {"once": store(), "scope": None, "methods": sorted(WRITES)}
