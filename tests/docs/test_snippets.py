"""Every Python snippet of the README and the docs runs and does what its comments say."""

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import empty  # type: ignore[import-untyped]  # Django brings no types
from django.conf import settings as django_settings

from oncekey import Once
from oncekey.stores import SQLiteStore
from tests.docs.snippets import BrokenPromiseError, blocks, run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
WITH_CODE = {"README.md", "tutorial.md", "ways-in.md", "reference.md", "guarantees.md"}


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The name of an empty module in an empty folder; what it opens is closed afterwards."""
    name = "snippets_of_a_page"
    made = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.chdir(tmp_path)
    for variable in [one for one in os.environ if one.startswith("ONCEKEY_")]:
        monkeypatch.delenv(variable)
    monkeypatch.delenv("REDIS_URL", raising=False)
    configured, django_settings._wrapped = django_settings._wrapped, empty  # a page may do it anew
    yield name
    for value in list(vars(made).values()):
        if isinstance(value, (Once, SQLiteStore)):
            value.close()
    django_settings._wrapped = configured


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_does_what_it_says(page, module):
    run(page, page.read_text("utf-8"), module)


def test_the_pages_that_teach_have_snippets():
    found = {
        page.name
        for page in PAGES
        if any(block.language == "python" for block in blocks(page.read_text("utf-8")))
    }
    assert found >= WITH_CODE


# The runner itself


def page_of(*code: str, language: str = "python") -> str:
    return "\n".join(["Text.", "", f"```{language}", *code, "```", ""])


@pytest.mark.parametrize(
    "code",
    ["x = 1", "1 + 1  # -> 2", "[][0]  # raises IndexError", "[][0]  # raises LookupError"],
)
def test_promises_that_are_kept_pass(code, module):
    run(Path("page.md"), page_of(code), module)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 + 1  # -> 3", "page.md:4: is 2, not 3"),
        ("1 + 1  # raises ValueError", "page.md:4: does not raise ValueError"),
        ("[][0]  # raises ValueError", "page.md:4: raises IndexError, not ValueError"),
        ("x = 1  # -> 1", "page.md:4: only an expression has a value to promise"),
    ],
)
def test_a_broken_promise_is_named_with_its_line(code, says, module):
    with pytest.raises(BrokenPromiseError, match=says):
        run(Path("page.md"), page_of(code), module)


def test_blocks_of_a_page_share_a_module(module):
    run(Path("page.md"), page_of("x = 1") + page_of("y = x + 1", "y  # -> 2"), module)


def test_an_error_nobody_announced_comes_through(module):
    with pytest.raises(ZeroDivisionError):
        run(Path("page.md"), page_of("1 / 0"), module)


@pytest.mark.parametrize("language", ["", "py", "pycon", "{code-block} python"])
def test_no_block_gets_past_the_runner_under_another_name(language, module):
    with pytest.raises(BrokenPromiseError, match=r"page\.md:"):
        run(Path("page.md"), page_of("1 / 0", language=language), module)


def test_a_block_that_is_never_closed_is_noticed(module):
    with pytest.raises(BrokenPromiseError, match="no language"):
        run(Path("page.md"), "```python\nx = 1\n", module)
