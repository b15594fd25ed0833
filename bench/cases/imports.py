"""What a program pays to start: the CPU time of `import oncekey`, beside what it stands on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from bench.report.rows import Row
from bench.settings import Settings
from bench.timing import Side, Tick, Timings, interleave

_MOST_COST: Final = 1.5
_DONT_WRITE: Final = "PYTHONDONTWRITEBYTECODE"
_STATEMENTS: Final = {
    "nothing": "pass",
    "asyncio": "import asyncio",
    "foundation": "import asyncio, msgspec",
    "oncekey": "import oncekey",
}
_COUNT: Final = (
    "import sys, oncekey; print(sum(name.partition('.')[0] == 'oncekey' for name in sys.modules))"
)


def import_row(settings: Settings, tick: Tick) -> Row:
    """The start of the interpreter itself is taken off on both sides."""
    sides = {name: Side(_starts(code), 1) for name, code in _STATEMENTS.items()}
    started = interleave(sides, rounds=settings.rounds, tick=tick, clock=_cpu_of_children)
    alone = started.per_call("nothing")
    timings = Timings(
        {name: [max(1e-9, took - alone) for took in started[name]] for name in _STATEMENTS}
    )
    cost = timings.cost("oncekey", "foundation")
    return Row(
        id="import",
        title="import oncekey, CPU time",
        value=timings.per_call("oncekey") * 1e3,
        unit="ms",
        against="import asyncio, msgspec",
        against_value=timings.per_call("foundation") * 1e3,
        ratio=cost,
        target=f"at most {_MOST_COST}x",
        met=cost.median <= _MOST_COST,
        remark=f"{_modules()} modules of ours; asyncio alone took "
        f"{timings.per_call('asyncio') * 1e3:.3g} ms",
    )


def _starts(code: str) -> Callable[[int], None]:
    """Compiled modules are used, as in an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != _DONT_WRITE}

    def start(calls: int) -> None:
        for _ in range(calls):
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)

    return start


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _modules() -> str:
    command = [sys.executable, "-c", _COUNT]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
