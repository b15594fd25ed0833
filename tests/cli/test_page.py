"""The pages about commands say what the program does."""

import re

import pytest
from typer.main import get_command

from oncekey.cli import errors
from oncekey.cli.program import program
from tests.cli.page import PAGE, PAGES, steady, whole
from tests.cli.picture import PICTURE

TEXT = PAGE.read_text("utf-8")
COMMANDS = getattr(get_command(program(terminal=False)), "commands")  # noqa: B009 - untyped


SLOW = {"outage"}  # tests/system/outage


@pytest.mark.parametrize(
    "page", [one for one in PAGES if one.stem not in SLOW], ids=lambda p: p.stem
)
def test_every_example_of_a_page_prints_what_the_page_shows(page):
    assert steady(whole(page)) == steady(page.read_text("utf-8"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_names_every_option_of_a_command(name):
    section = TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    known = {option for option in known if option.startswith("-")} - {"-h", "--help"}
    assert set(re.findall(r"`(--?[a-z-]+)", section)) >= known


def test_the_page_has_every_exit_code():
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)]
    refusals = [errors.NOTHING, errors.WRONG, errors.REFUSED, errors.STORE]
    assert codes == [errors.DONE, *refusals, errors.INTERRUPTED]


def test_the_picture_fetches_nothing_and_shows_what_watch_draws():
    svg = PICTURE.read_text("utf-8")
    links = re.findall(r"https?://[^\s\"<]+", svg)
    assert set(links) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
    words = re.sub(r"<[^>]+>", " ", svg).replace("&#160;", " ")
    for shown in ("sqlite:///oncekey.db", "STATUS", "held", "total", "billing/charge:1043"):
        assert shown in words
