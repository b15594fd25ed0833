"""The figures of a report in words, the same on a terminal, in a pipe and on the page."""

from __future__ import annotations

from bench.report.rows import Row

HEADINGS = ("measured", "result", "compared with", "its result", "ratio", "target", "")


def cells(row: Row) -> tuple[str, ...]:
    """The row under the headings."""
    measured = row.met is not None or not row.target
    against_value = "" if row.against_value is None else quantity(row.against_value, row.unit)
    return (
        row.title,
        quantity(row.value, row.unit) if measured else "",
        row.against,
        against_value,
        ratio(row),
        row.target,
        row.verdict,
    )


def quantity(value: float, unit: str) -> str:
    """Three figures are as many as mean something."""
    if unit == "calls/s":
        return f"{float(f'{value:.3g}'):,.0f}/s"
    said_by_title = unit in ("commits", "statements")
    return f"{value:.3g}" if said_by_title else f"{value:.3g} {unit}"


def ratio(row: Row) -> str:
    """The median, and where the middle half of the rounds lies."""
    if row.ratio is None:
        return ""
    median, low, high = (f"{figure:.2f}" for figure in row.ratio)
    return f"{median}x ({low} to {high})"


def times(ratio: float) -> str:
    """A ratio alone, in three figures."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.3g}x"


def legend(rounds: int) -> str:
    """How to read the ratios."""
    return (
        f"Figures are medians of {rounds} rounds. In each round both sides of a comparison run one "
        f"after the other, in turn first. A ratio is taken within a round; the range behind it "
        f"holds the middle half of the rounds."
    )


HOW_COUNTED = (
    "Commits are counted in the write-ahead log of the file, statements by SQLite's own trace, "
    "store calls by a store that passes every request on to the real one."
)
