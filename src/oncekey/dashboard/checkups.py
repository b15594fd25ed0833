"""What the doctor says about the store, asked now and then."""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool

from oncekey.dashboard.queries import Shared
from oncekey.doctor import Finding, examine
from oncekey.once import Once

_OFTEN: Final = 300.0
_TONES: Final = {"danger": "failed", "warning": "held", "fine": "completed"}


def tone_of(finding: Finding) -> str:
    """The colour of its severity."""
    return _TONES[finding.severity]


class Checkups:
    """The findings of the doctor, for everybody who looks."""

    def __init__(self, once: Once) -> None:
        """Nothing is asked yet."""
        self._findings = Shared(lambda: examine(once.store), _OFTEN)

    async def findings(self, *, anew: bool = False) -> list[Finding]:
        """What was found, the worst first."""
        return await run_in_threadpool(self._findings, anew=anew)
