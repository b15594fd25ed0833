"""Tools for your own tests: chaos for a handler, a suite for stores, a clock, the off switch.

The suite needs pytest and Hypothesis, the fixture pytest. Each is imported on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from oncekey.policy import disabled
from oncekey.testing.clock import FakeClock

if TYPE_CHECKING:
    from oncekey.testing.chaos import Chaos, ChaosError
    from oncekey.testing.conformance import AsyncStoreConformance, StoreConformance
    from oncekey.testing.failing_store import FailingStore
    from oncekey.testing.pytest_plugin import once_chaos

__all__ = [
    "AsyncStoreConformance",
    "Chaos",
    "ChaosError",
    "FailingStore",
    "FakeClock",
    "StoreConformance",
    "disabled",
    "once_chaos",
]

_PLAIN: Final = {
    "Chaos": "chaos",
    "ChaosError": "chaos",
    "FailingStore": "failing_store",
    "once_chaos": "pytest_plugin",
}


def __getattr__(name: str) -> object:
    """Import the name from its module. Let pytest rewrite the assertions of the suites."""
    if name in _PLAIN:
        plain: object = getattr(import_module(f"{__name__}.{_PLAIN[name]}"), name)
        return plain
    if name not in ("AsyncStoreConformance", "StoreConformance"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import pytest

    parts = [f"{__name__}.{part}" for part in ("model", "conformance")]
    pytest.register_assert_rewrite(*(part for part in parts if part not in sys.modules))
    suites: object = getattr(import_module(f"{__name__}.conformance"), name)
    return suites
