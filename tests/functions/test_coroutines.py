"""The same tests for coroutines: each module beside this one, awaited."""

import asyncio
from pathlib import Path

from tests.async_copy import awaiting

__all__ = ["asyncio"]

BOTH_COLOURS = (
    *("running", "errors", "takeover", "waiting"),
    *("attempts", "trouble", "lease", "admin", "hung"),
)

for _name in BOTH_COLOURS:
    awaiting(Path(__file__).with_name(f"test_{_name}.py"), globals())
