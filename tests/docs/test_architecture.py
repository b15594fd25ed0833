"""The page of the architecture names files that there are, and its pictures show the tree.

That the pictures of the walks have the files that are walked through is in test_tools.py.
"""

import re
from pathlib import Path

import pytest

from bench.architecture import (
    PHASES,
    PICTURES,
    PURPOSE,
    YOURS,
    Step,
    draw_layers,
    draw_walk,
    layers,
    path_of,
)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "oncekey"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PICTURE = PICTURES["sync function, SQLite"]
CALL = [
    Step("functions.py", "Protected.__call__"),
    Step("engine/engine.py", "Engine.enter"),
    Step("stores/sqlite/store.py", "SQLiteStore.claim"),
    Step("stores/sqlite/store.py", "SQLiteStore.claim", asks=True),
    Step("core/machine.py", "claim"),
    Step("stores/sqlite/store.py", "_first"),
    Step("engine/run_base.py", "BaseRun.__init__"),
    Step(YOURS, "charge"),
    Step("engine/run_base.py", "BaseRun.settlement"),
    Step("engine/run_base.py", "BaseRun.settled"),
]


def words(picture: str, kind: str) -> list[str]:
    return re.findall(rf'<text class="{kind}"[^>]*>([^<]*)</text>', picture)


def test_the_layers_are_drawn_as_pyproject_has_them():
    drawn = path_of("layers").read_text("utf-8")
    assert words(drawn, "name") == [name for layer in layers() for name in layer]
    assert drawn == draw_layers(), "python -m bench.walk --write draws it again"


def test_every_module_of_the_package_is_in_a_layer_and_no_other():
    modules = {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(words(draw_layers(), "name")) == modules | packages == PURPOSE.keys()


@pytest.mark.parametrize("name", ["layers", *(picture.name for picture in PICTURES.values())])
def test_the_page_shows_the_picture_and_the_files_on_it_are_there(name):
    assert f"(images/{path_of(name).name})" in PAGE
    drawn = words(path_of(name).read_text("utf-8"), "file")
    assert [file for file in drawn if file.endswith(".py") and not (PACKAGE / file).exists()] == []


def test_the_files_and_folders_that_the_page_names_are_there():
    named = re.findall(r"`([\w/]+(?:\.py|/\w*))`", PAGE)
    assert len(named) > 40
    places = (PACKAGE, ROOT)
    assert [name for name in named if not any((one / name).exists() for one in places)] == []


def test_a_walk_is_drawn_with_its_files_its_parts_and_what_the_store_is_asked():
    drawn = draw_walk(PICTURE, CALL)
    assert words(drawn, "file") == [
        PICTURE.yours,
        "functions.py",
        "engine/engine.py",
        "engine/run_base.py",
        "stores/sqlite/store.py",
        "core/machine.py",
        PICTURE.store,
    ]
    assert words(drawn, "phase") == list(PHASES)
    assert words(drawn, "number") == ["5", "7", "8", "9"]
    assert drawn.count('class="ask"') == 1
    assert "<desc>" in drawn


def test_a_part_of_a_call_whose_beginning_is_gone_is_noticed():
    renamed = [step._replace(function=step.function.replace("settled", "over")) for step in CALL]
    with pytest.raises(ValueError, match=r"BaseRun\.settled was not called"):
        draw_walk(PICTURE, renamed)
