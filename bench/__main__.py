"""Run the measurements. It exits with 1 when a target is missed, and with 0 when none is."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.peers.folders import FOLDER
from bench.report.page import COMMAND, KEPT, PAGE, write
from bench.report.rows import Report, joined
from bench.report.saved import NotOursError, as_json, from_json
from bench.report.terminal import progress, show
from bench.run import PARTS, run, ticks
from bench.settings import FULL, QUICK

RESULTS: Final = FOLDER / "results.json"
"""Where a whole run leaves what it measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and report in the way that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="only see that all of it runs")
    parser.add_argument("--json", action="store_true", help="report for programs")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md too")
    parser.add_argument("--page", type=Path, help="only write it, from the results in this file")
    parser.add_argument("--folder", type=Path, help="measure on the file system of this folder")
    asked = parser.parse_args(arguments)
    if asked.page is not None:
        return _page(asked.page, parser)
    if asked.quick and asked.write:
        parser.error("--quick measures nothing worth writing down: leave out --quick or --write")
    unknown = [name for name in asked.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if asked.folder is not None and not asked.folder.is_dir():
        parser.error("--folder must name a folder that exists")

    # Ended from outside, the server and the files must go as well.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    settings = QUICK if asked.quick else FULL
    parts = asked.parts or list(PARTS)
    with progress(ticks(settings, parts)) as tick:
        whole = not asked.quick and not asked.parts
        keep = _keep if whole else (lambda _: None)
        report = run(settings, tick, beside=asked.folder, parts=parts, keep=keep)
    console = Console()
    if asked.json:
        print(as_json(report))
    else:
        show(report, console)
    if whole:
        print(f"results: {os.path.relpath(RESULTS)}", file=sys.stderr)
    if asked.write:
        write(report if whole else joined(from_json(KEPT.read_text("utf-8")), report))
        print(f"written by {COMMAND}: docs/{PAGE.name}", file=sys.stderr)
    return 1 if report.missed and not asked.quick else 0


def _keep(report: Report) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(as_json(report) + "\n", "utf-8")


def _page(results: Path, parser: argparse.ArgumentParser) -> int:
    """The page is written from a run that was kept."""
    try:
        report = from_json(results.read_text("utf-8"))
    except OSError as error:
        parser.error(f"--page must name a file that can be read: {error.strerror}")
    except NotOursError as error:
        parser.error(f"--page: {error}")
    if report.settings == QUICK:
        parser.error("--quick measures nothing worth writing down: make the results without it")
    missing = [name for name in PARTS if name not in report.parts]
    if missing:
        parser.error(f"the page has every row: these results lack {', '.join(missing)}")
    write(report)
    print(f"written from {results.name}: docs/{PAGE.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
