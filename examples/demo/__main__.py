"""Show payments, webhooks, a job and a chain; exit with 0 if everything claimed was so, else 1."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from examples.demo.case import Case, Place
from examples.demo.cases import CASES
from examples.demo.chain import CHAINED
from examples.demo.crash import CRASH
from examples.demo.serving import serve
from examples.demo.site import Site
from examples.demo.stage import Lines, Plain, Stage, Terminal
from examples.demo.watched import WATCHED
from examples.tour.stage import canvas, picture
from examples.tour.step import Fact

EVERY = (*CASES, CRASH, WATCHED, CHAINED)
IN_PICTURE = ("first", "retry", "concurrent", "crash")
"""The cases that fit into a picture."""

OPENING = (
    "A payment service that charges once, however often it is asked. Three servers share one "
    "SQLite file; each case sends real requests and checks its claims against the gateway's own "
    "book. The last two need no server: a job is watched, and three services send each other "
    "messages."
)
CLOSING = (
    "make demo-serve keeps the service up for your own requests, with pages that show a job and a "
    "chain. The README goes on from here."
)


def play(
    cases: Sequence[Case], place: Place, stages: Sequence[tuple[Stage, Sequence[str]]]
) -> list[Fact]:
    """Play the cases in order, and show each on the stages that want it; what was not so."""
    failed: list[Fact] = []
    for number, case in enumerate(cases, 1):
        shown = case.shown(place)
        for stage, names in stages:
            if case.name in names:
                stage.show(number, len(cases), case, shown)
        failed += [fact for fact in shown.facts if not fact.holds]
    return failed


def demonstrate(stages: Sequence[tuple[Stage, Sequence[str]]]) -> int:
    """The whole demonstration; its exit code."""
    for stage, _ in stages:
        stage.opening(OPENING)
    with Site() as site:
        failed = play(EVERY, site, stages)
    words = f"{len(EVERY)} cases, and everything claimed was so. {CLOSING}"
    if failed:
        words = "Not so: " + "; ".join(fact.text for fact in failed)
    for stage, _ in stages:
        stage.closing(words)
    return 1 if failed else 0


def chosen(console: Console, *, as_json: bool) -> Stage:
    """Colours where somebody looks and the letters are there, else plain text."""
    if as_json:
        return Lines()
    colourful = console.is_terminal and console.encoding.startswith("utf")
    return Terminal(console) if colourful else Plain()


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each case")
    parser.add_argument("--svg", type=Path, help="draw some of the cases into this file as well")
    parser.add_argument("--serve", action="store_true", help="stay up, for curl and a browser")
    parser.add_argument("--port", type=int, default=8000, help="the port of --serve")
    said = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("ONCEKEY_")]:
        del os.environ[name]  # the demonstration explains what happens by default
    if said.serve:
        return serve(said.port)
    every = [case.name for case in EVERY]
    stages: list[tuple[Stage, Sequence[str]]] = [(chosen(Console(), as_json=said.json), every)]
    drawn = Terminal(canvas())
    if said.svg is not None:
        stages.append((drawn, IN_PICTURE))
    try:
        code = demonstrate(stages)
    except KeyboardInterrupt:
        return 130
    if said.svg is not None and code == 0:
        said.svg.write_text(picture(drawn.console), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
