"""What must happen is waited for with patience, and given up without it."""

import select
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import patience

TELLS = "print('.', flush=True); print('.', flush=True); raise SystemExit(3)"
HANGS = "import time; print('.', flush=True); time.sleep(3600)"


@pytest.fixture
def waits(monkeypatch):
    """How long the command was waited for each time, and how often it may be at all."""
    seen = SimpleNamespace(seconds=[], most=1000)

    def waiting(reading, writing, others, seconds):
        seen.seconds.append(seconds)
        if len(seen.seconds) > seen.most:
            return [], [], []
        return select.select(reading, writing, others, seconds)

    monkeypatch.setattr(patience, "select", SimpleNamespace(select=waiting))
    return seen


def run(code):
    return patience.run_while_it_prints([sys.executable, "-c", code], Path())


def test_a_command_is_waited_for_anew_whenever_it_has_printed(waits):
    assert run(TELLS) == (3, ".\n" * 2)
    assert len(waits.seconds) > 1
    assert set(waits.seconds) == {patience.PATIENCE}


def test_one_that_prints_nothing_more_is_given_up_and_ended(waits):
    waits.most = 1
    with pytest.raises(AssertionError, match=r"it never came true.* It has printed \."):
        run(HANGS)
