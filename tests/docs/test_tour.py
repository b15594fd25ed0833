"""The tour shows what it runs, checks what it claims, and is what the README's picture shows."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from examples.tour.__main__ import play
from examples.tour.stage import Plain, Stage, Terminal, chosen
from examples.tour.step import Fact, Step
from tests.patience import PATIENCE

pytestmark = pytest.mark.xdist_group("tour")  # what they share is made once

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "tour.svg"

STEPS = {
    "The first call runs": "returned Receipt(number='bank-1', amount=40)",
    "The same call again is answered, not run": "its type is Receipt, not dict",
    "Many callers at the same time": "64 tasks: 1 ran",
    "The same key for something else is refused": "KeyReusedError: 'charge:A-1'",
    "A failure can be the answer": "both calls raised CardDeclinedError('limit', 900)",
    "A process is killed half way, another one takes over": "ended with -9: SIGKILL",
    "Outcome unknown: held, and resolved by hand": "the second OutcomeUnknownError",
    "The time to live is over": "after it the call ran again",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the tour printed into a pipe, and what it drew."""
    svg = tmp_path_factory.mktemp("tour") / "tour.svg"
    done = subprocess.run(
        [sys.executable, "-m", "examples.tour", "--svg", svg],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, svg.read_text("utf-8")


def test_the_tour_ends_by_itself_and_shows_every_step(shown):
    text, _ = shown
    parts = re.split(r"^\d/8  (.+)$", text, flags=re.MULTILINE)[1:]
    titles, bodies = parts[::2], parts[1::2]
    assert titles == list(STEPS)
    for title, body in zip(titles, bodies, strict=True):
        assert STEPS[title] in body
        assert "    def " in body
        assert "  why " in body


def test_every_claim_was_so(shown):
    text, _ = shown
    assert "NOT SO" not in text
    assert text.count("\n  ok  ") >= 3 * len(STEPS)
    assert "8 steps, and everything claimed was so." in text


def test_the_picture_in_the_readme_is_what_the_tour_draws(shown):
    _, svg = shown
    assert PICTURE.read_text("utf-8") == svg, (
        "python -m examples.tour --svg docs/images/tour.svg draws it again"
    )


def test_the_picture_fetches_nothing():
    links = re.findall(r"https?://[^\s\"<]+", PICTURE.read_text("utf-8"))
    assert set(links) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


def scene() -> int:
    return 1


def step(facts: Callable[[int], list[Fact]]) -> Step:
    return Step(title="A step", scene=scene, facts=facts, why="It is a test.")


def test_what_is_shown_is_what_runs(capsys):
    failed = play([step(lambda seen: [Fact("one", seen == 1)])], [(Plain(), [1])])
    assert not failed
    assert "    def scene() -> int:\n        return 1\n" in capsys.readouterr().out


def test_a_claim_that_is_not_so_is_shown_and_reported(capsys):
    console = Console(width=80, force_terminal=True)
    stages: list[tuple[Stage, list[int]]] = [(Plain(), [1]), (Terminal(console), [1])]
    failed = play([step(lambda seen: [Fact("two", seen == 2)])], stages)
    assert [fact.text for fact in failed] == ["two"]
    out = capsys.readouterr().out
    assert "  NOT SO  two" in out
    assert "✗" in out


def test_a_tour_that_fails_says_so_with_its_exit_code(tmp_path):
    broken = (
        "import sys; from examples.tour import __main__ as t; from examples.tour import shop; "
        "shop.Bank.times = lambda self, order: 2; sys.exit(t.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken],
        cwd=ROOT,
        env={**os.environ, "ONCEKEY_TOUR_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "NOT SO" in done.stdout


def test_colours_are_for_terminals_that_have_the_letters():
    assert isinstance(chosen(Console(force_terminal=True, file=io.StringIO())), Terminal)
    assert isinstance(chosen(Console(force_terminal=False, file=io.StringIO())), Plain)
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as ascii_only:
        assert isinstance(chosen(Console(force_terminal=True, file=ascii_only)), Plain)


def test_long_lines_are_not_cut_off_on_a_narrow_terminal(capsys):
    stage = Terminal(Console(width=40, force_terminal=True, color_system=None))
    stage.announce(1, 1, Step(title="A step", scene=long_scene, facts=lambda _: [], why=""))
    out = capsys.readouterr().out
    assert "the end of it" in " ".join(out.split())


def long_scene() -> str:
    return "a line that is longer than the terminal is wide, to the end of it"
