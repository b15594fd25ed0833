"""Run the measurements. It exits with 1 when a target is missed, and with 0 when none is."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.page import COMMAND, PAGE, page
from bench.run import PARTS, run, ticks
from bench.settings import FULL, QUICK
from bench.show import as_json, progress, show


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and report in the way that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="only see that all of it runs")
    parser.add_argument("--json", action="store_true", help="report for programs")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md as well")
    parser.add_argument("--folder", type=Path, help="measure on the file system of this folder")
    asked = parser.parse_args(arguments)
    if asked.quick and asked.write:
        parser.error("--quick measures nothing worth writing down: leave out --quick or --write")
    unknown = [name for name in asked.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if asked.parts and asked.write:
        parser.error("the page has every row: leave out --write or the parts")
    if asked.folder is not None and not asked.folder.is_dir():
        parser.error("--folder must name a folder that exists")

    # Ended from outside, the server and the files must go as well.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    settings = QUICK if asked.quick else FULL
    parts = asked.parts or list(PARTS)
    with progress(ticks(settings, parts)) as tick:
        report = run(settings, tick, beside=asked.folder, parts=parts)
    console = Console()
    if asked.json:
        print(as_json(report))
    else:
        show(report, console)
    if asked.write:
        PAGE.write_text(page(report), "utf-8")
        print(f"written by {COMMAND}: docs/{PAGE.name}", file=sys.stderr)
    return 1 if report.missed and not asked.quick else 0


if __name__ == "__main__":
    sys.exit(main())
