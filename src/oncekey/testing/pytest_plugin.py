"""The pytest plugin: strict results, and the fixture `once_chaos`.

It is active wherever Oncekey is installed; nothing needs to be imported. The rest is imported by
the first test that asks for it, so that other tests pay little.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncekey.testing.chaos import Chaos


def pytest_configure(config: pytest.Config) -> None:
    """Let a result that duplicates could not get back be an error, unless somebody said otherwise.

    Nobody calls a function twice in most tests, so that nobody would notice.
    """
    if "ONCEKEY_STRICT" not in os.environ:
        os.environ["ONCEKEY_STRICT"] = "1"
        config.add_cleanup(_not_strict)


def _not_strict() -> None:
    os.environ.pop("ONCEKEY_STRICT", None)


@pytest.fixture
def once_chaos() -> Iterator[Chaos]:
    """Runs a handler with duplicates, overlaps and crashes, and counts its effects."""
    from oncekey.testing.chaos import Chaos

    chaos = Chaos()
    yield chaos
    chaos.close()
