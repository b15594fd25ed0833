"""What a store in memory means."""

from __future__ import annotations

from collections.abc import Iterator

from oncekey.doctor.finding import Finding, warning


def findings() -> Iterator[Finding]:
    """It is for one process, and for as long as that lives."""
    meaning = "records live in this process alone: others do not see them, and its end forgets them"
    fix = "use sqlite:///, redis:// or postgresql:// for whatever must not happen twice"
    yield warning("memory.process", meaning, "store=memory://", fix)
