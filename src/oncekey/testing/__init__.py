"""For your own tests: a suite that proves a store, a clock that you move, and the off switch.

The suite needs pytest and Hypothesis; they are imported when you first name it, not before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from oncekey.switch import disabled
from oncekey.testing.clock import FakeClock

if TYPE_CHECKING:
    from oncekey.testing.conformance import AsyncStoreConformance, StoreConformance

__all__ = ["AsyncStoreConformance", "FakeClock", "StoreConformance", "disabled"]


def __getattr__(name: str) -> object:
    """The suites, imported so that pytest explains their failed assertions like your own."""
    if name not in ("AsyncStoreConformance", "StoreConformance"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import pytest  # noqa: PLC0415 - a user of FakeClock alone need not have it

    parts = [f"{__name__}.{part}" for part in ("suite", "model", "conformance")]
    pytest.register_assert_rewrite(*(part for part in parts if part not in sys.modules))
    suites: object = getattr(import_module(f"{__name__}.conformance"), name)
    return suites
