"""The pytest plugin: the fixture `once_chaos`.

It is active wherever Oncekey is installed; nothing needs to be imported. The rest is imported by
the first test that asks for it, so that other tests pay little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oncekey.testing.chaos import Chaos


@pytest.fixture
def once_chaos() -> Iterator[Chaos]:
    """Runs a handler with duplicates, overlaps and crashes, and counts its effects."""
    from oncekey.testing.chaos import Chaos

    chaos = Chaos()
    yield chaos
    chaos.close()
