"""docs/requirements.md has every row, and each proof it names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^\| *([A-Z]\d+) *\|(.*)\|([^|]*)\|$", re.MULTILINE)
ROWS = LINE.findall((ROOT / "docs" / "requirements.md").read_text("utf-8"))
COUNTS = {"J": 12, "M": 6, "W": 9, "P": 14, "E": 7}


def test_every_row_is_there_once_and_in_order():
    expected = [f"{letter}{n}" for letter, count in COUNTS.items() for n in range(1, count + 1)]
    assert [row for row, _, _ in ROWS] == expected


@pytest.mark.parametrize(("row", "text", "proof"), ROWS, ids=[row for row, _, _ in ROWS])
def test_a_row_names_proofs_that_exist_or_admits_that_there_is_none(row, text, proof):
    assert text.strip()
    named = re.findall(r"`(tests/[^`]+\.py)`", proof)
    assert bool(named) != (proof.strip() == "not yet"), f"{row}: {proof!r} is no proof"
    for name in named:
        source = (ROOT / name).read_text("utf-8")
        marks = re.findall(r"mark\.row\(([^)]*)\)", source)
        assert any(f'"{row}"' in ids for ids in marks), f"{name} has no test marked {row}"


def test_every_row_that_a_test_claims_is_named_in_the_table():
    proofs = {row: proof for row, _, proof in ROWS}
    silent = [
        f"{row}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if (name := path.relative_to(ROOT).as_posix()) and "project" not in path.parts
        for ids in re.findall(r"mark\.row\(([^)]*)\)", path.read_text("utf-8"))
        for row in re.findall(r'"([A-Z]\d+)"', ids)
        if f"`{name}`" not in proofs.get(row, "")
    ]
    assert not silent
