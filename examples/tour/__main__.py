"""Run the tour. It exits with 0 when everything it claims was so, and with 1 when not."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from examples.tour import FOLDER
from examples.tour.stage import Stage, Terminal, canvas, chosen, picture

if TYPE_CHECKING:
    from examples.tour.step import Fact, Step

IN_PICTURE = (1, 2, 6)
"""The steps that fit into a picture."""

OPENING = (
    "An operation that arrives twice happens once, and whoever asks twice gets the same answer. "
    "Eight steps on a temporary SQLite file: each shows its code, runs it, and checks what it "
    "claims against a bank that keeps its own book."
)


class Captured(logging.Handler):
    """What the library logged since the last look."""

    def __init__(self) -> None:
        """Listen to warnings and what is worse."""
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def taken(self) -> list[str]:
        """The lines, which are not handed out again."""
        lines, self.lines = self.lines, []
        return lines


@contextmanager
def captured() -> Iterator[Captured]:
    """The warnings of the library are shown with the step they belong to, and nowhere else."""
    logger, handler = logging.getLogger("oncekey"), Captured()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def play(steps: Sequence[Step], stages: Sequence[tuple[Stage, Sequence[int]]]) -> list[Fact]:
    """Run the steps in order, and show each on the stages that want it; what was not so."""
    failed: list[Fact] = []
    with captured() as log:
        for number, step in enumerate(steps, 1):
            wanted = [stage for stage, numbers in stages if number in numbers]
            for stage in wanted:
                stage.announce(number, len(steps), step)
            facts = list(step.facts(step.scene()))
            logged = log.taken()
            for stage in wanted:
                stage.conclude(step, facts, logged)
            failed += [fact for fact in facts if not fact.holds]
    return failed


def tour(stages: Sequence[tuple[Stage, Sequence[int]]]) -> int:
    """The whole tour; its exit code."""
    from examples.tour import calls, crash, hold, shop, ttl

    steps = [calls.FIRST, calls.REPLAY, calls.CONCURRENT, calls.OTHER, calls.KEPT]
    steps += [crash.CRASH, hold.HOLD, ttl.TTL]
    for stage, _ in stages:
        stage.opening(OPENING)
    failed = play(steps, stages)
    records = [
        (record.scope or "", record.key, record.status, str(record.attempt))
        for record in shop.once.scan()
    ]
    words = f"{len(steps)} steps, and everything claimed was so. The README goes on from here."
    if failed:
        words = "Not so: " + "; ".join(fact.text for fact in failed)
    for stage, _ in stages:
        stage.closing(records, words)
    shop.once.close()
    return 1 if failed else 0


def main() -> int:
    """Run the tour in a folder that is gone afterwards."""
    parser = argparse.ArgumentParser(prog="python -m examples.tour", description=__doc__)
    parser.add_argument("--svg", type=Path, help="draw some of the steps into this file as well")
    svg: Path | None = parser.parse_args().svg

    folder = tempfile.mkdtemp(prefix="oncekey-tour-")
    for name in [name for name in os.environ if name.startswith("ONCEKEY_")]:
        del os.environ[name]  # the tour explains what happens by default
    os.environ[FOLDER] = folder
    every = range(1, 100)
    stages: list[tuple[Stage, Sequence[int]]] = [(chosen(Console()), every)]
    drawn = Terminal(canvas())
    if svg is not None:
        stages.append((drawn, IN_PICTURE))
    try:
        code = tour(stages)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if svg is not None and code == 0:
        svg.write_text(picture(drawn.console), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
