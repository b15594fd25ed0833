"""Planted defects of the core: the simulator runs against a copy of the sources with each in it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tests.defects.__main__ import HERE, ROOT, Defect, read
from tests.defects.patch import apply
from tests.simulation.stage import CORE

ENOUGH: Final = 1_000
"""Within so many schedules most planted defects are found."""
MOST: Final = 10_000
"""Within so many each of them must have been found."""
FOUND: Final = 1
PATIENCE: Final = 1800

_TARGET = re.compile(r"(?m)^--- a/src/oncekey/(\S+)\.py")

_CHARTS: Final = "nobody counts calls for charts, and only charts have something to do at the end"
_PYTHON: Final = "it is about Python's own threads, loops and forks, which are replaced"
_SURFACE: Final = "it is about a surface, and only functions are called"
_BETWEEN: Final = "a thread would have to come in between two lines"

BLIND: Final[dict[str, str]] = {
    "activity_counts_twice": _CHARTS,
    "activity_is_not_written_at_exit": _CHARTS,
    "activity_makes_a_removed_file_again": _CHARTS,
    "keeper_stops_at_a_failed_end": _CHARTS,
    "child_ends_the_attempt_of_its_parent": "a child runs no code that its parent was in",
    "child_takes_its_parents_loop_for_running": _PYTHON,
    "enqueue_quick_worker_is_a_lost_lease": _SURFACE,
    "fork_closes_what_is_the_parents": _PYTHON,
    "half_a_character_keeps_the_key": "no error has half a character in its words",
    "keeper_starts_when_the_interpreter_ends": _PYTHON,
    "late_patching_is_accepted": _PYTHON,
    "outbox_numbers_of_an_object": _SURFACE,
    "results_pile_up": "no schedule has 64 MiB of results",
    "sqlite_fork_does_not_wait": _PYTHON,
    "torn_block_is_renewed": _SURFACE,
    "torn_run_is_renewed": "it takes two signals in one call, and there is one",
    "waiter_looks_too_early": _BETWEEN,
}
"""Defects of the core that a schedule cannot show, and why."""

ELSEWHERE: Final = {
    "core/key": "keys are texts, and no schedule changes them; tests/fuzz looks for such defects",
    "engine/runtime": "it puts engines together, and a simulated process does so in its place",
}
"""Modules of the core that are not simulated, and why."""


class Verdict(NamedTuple):
    """What came of one planted defect."""

    defect: Defect
    seed: int | None
    words: str


def defects() -> dict[str, Defect]:
    """The planted defects of what is simulated, by name."""
    found = {}
    for path in sorted(HERE.glob("*.patch")):
        defect = read(path)
        if any(map(is_simulated, modules(defect))):
            found[defect.name] = defect
    return found


def beside() -> dict[str, str]:
    """The planted defects of modules beside the core, and why they are not looked for here."""
    return {
        path.stem: ELSEWHERE[module]
        for path in sorted(HERE.glob("*.patch"))
        for module in modules(read(path)) & set(ELSEWHERE)
    }


def is_simulated(module: str) -> bool:
    """Whether schedules run the code of the module."""
    inside = module.startswith(("core/", "engine/")) or module in CORE
    return inside and module not in ELSEWHERE


def modules(defect: Defect) -> set[str]:
    """The modules that the patch changes."""
    return set(_TARGET.findall(defect.patch))


def look_for(wanted: list[Defect], workers: int) -> Iterator[Verdict]:
    """Each defect is planted and looked for, those that cannot be seen for a while only."""
    most = [ENOUGH if defect.name in BLIND else MOST for defect in wanted]
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(plant, wanted, most)


NONE: Final = Defect("none", "nothing", [], "")
"""The sources as they are."""


def plant(defect: Defect, most: int = MOST) -> Verdict:
    """At which seed the simulator finds the defect."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
        try:
            apply(defect.patch, copy)
        except SystemExit as misfit:
            return Verdict(defect, None, str(misfit).partition(":\n")[0])
        command = [sys.executable, "-m", "tests.simulation", "--until-found"]
        try:
            done = subprocess.run(
                [*command, "--seeds", str(most), "--workers", "1"],
                cwd=ROOT,
                env={
                    **{name: one for name, one in os.environ.items() if not name.startswith("COV")},
                    "PYTHONPATH": str(copy / "src"),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict(defect, None, "it hangs")
    match = re.search(r"^violation in seed (\d+): ([^:\n]*)", done.stdout, re.MULTILINE)
    if done.returncode != FOUND or match is None:
        last = (done.stdout + done.stderr).splitlines()[-3:]
        return Verdict(defect, None, " / ".join(last))
    return Verdict(defect, int(match[1]), match[2])
