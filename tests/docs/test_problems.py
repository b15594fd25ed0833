"""There is a page for each thing that a client may be told, and it says the status and title."""

from pathlib import Path
from typing import get_args

import pytest

from oncekey.http import IETF
from oncekey.http.profiles import Situation

PAGES = Path(__file__).parents[2] / "docs" / "problems"
SITUATIONS = get_args(Situation)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_has_a_page_with_its_status_and_title(situation):
    text = (PAGES / f"{situation}.md").read_text("utf-8")
    words = IETF.says(situation)
    title = f": *{words.title}*." if words.title else "."
    assert text.startswith(f"# `{situation}`\n\nStatus {words.status}{title}\n")
    row = f"| [`{situation}`]({situation}.md) | {words.status} | "
    assert row in (PAGES / "index.md").read_text("utf-8")


def test_there_are_no_other_pages():
    assert {page.stem for page in PAGES.glob("*.md")} == {"index", *SITUATIONS}
