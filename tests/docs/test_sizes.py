"""The tables of sizes on the page of scaling are those that `python -m bench.sizes` writes."""

import re
from pathlib import Path

import pytest

from bench import sizes
from bench.sizes import BEGIN, CALLS, END, PAGE, SIZES, Found, between, in_sqlite, main, shown

FIGURE = re.compile(r"\d{1,3}(,\d{3})*(\.\d{1,2})?")
STORES = ("Redis", "PostgreSQL", "SQLite")
ROWS = [
    SIZES,
    "Redis: MEMORY USAGE",
    "Redis: used_memory",
    "PostgreSQL: table and indexes",
    "PostgreSQL: write-ahead log",
    "SQLite: file",
    CALLS,
    "Redis: reads from a socket",
    "PostgreSQL: transactions, each a round trip",
    "PostgreSQL: of them commits that write",
    "SQLite: commits",
]
FOUND = Found([("a store: file", "1", "2", "3")], [("a store: commits", "2", "1", "0")], "A 1")


def generated() -> str:
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]


def test_the_page_has_every_row_with_a_figure_in_each_cell():
    lines = [line for line in generated().splitlines() if line.startswith("| ")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    assert len(rows) == len(ROWS)
    for row, wanted in zip(rows, ROWS, strict=True):
        if isinstance(wanted, tuple):
            assert row == wanted
        else:
            assert row[0] == wanted
            assert len(row) == len(SIZES)
            assert all(FIGURE.fullmatch(cell) for cell in row[1:]), row


def test_the_page_says_on_what_it_was_measured():
    said = re.findall(
        r"^Measured with [\d,]+ records of each size on (.+)\.$", generated(), re.MULTILINE
    )
    assert len(said) == 1
    assert all(re.search(rf"{store} \d", said[0]) for store in STORES)


def test_only_what_is_between_the_markers_is_written():
    page = f"Before.\n\n{BEGIN}\n\nold\n\n{END}\n\nAfter.\n"
    assert between(page, "new") == page.replace("old", "new")
    assert between(between(page, "new"), "new") == between(page, "new")


def test_a_page_without_markers_is_not_touched():
    with pytest.raises(ValueError, match="put back"):
        between(f"{END} {BEGIN}", "new")


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch, capsys):
    page = tmp_path / "scaling.md"
    page.write_text(f"{BEGIN}{END}", "utf-8")
    monkeypatch.setattr(sizes, "PAGE", page)
    for name in ("in_redis", "in_postgres", "in_sqlite"):
        monkeypatch.setattr(sizes, name, lambda *_: FOUND)
    assert main(["--records", "64", "--write"]) == 0
    text = shown([FOUND] * 3, 64)
    assert page.read_text("utf-8") == f"{BEGIN}\n\n{text}\n\n{END}"
    assert capsys.readouterr().out == text + "\n"


def test_too_few_records_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--records", "63"])
    assert "64 or more" in capsys.readouterr().err


def test_a_file_is_measured(tmp_path: Path):
    found = in_sqlite(tmp_path, 640)
    assert found.calls[0][1] == "2"  # claim and settle are a commit each
    assert found.calls[0][3] == "0"  # a duplicate writes nothing
    none, small, large = (float(cell.replace(",", "")) for cell in found.sizes[0][1:])
    assert 0 < none < small < large
    assert large - small > 900 - 1  # what is kept is in the file
