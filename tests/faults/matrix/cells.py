"""The cells of the matrix: which row is run on which store, through which surface."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from tests.faults.matrix.lab import Lab, Result

Cell = Callable[[Lab, str], Result]


class Entry(NamedTuple):
    """One cell."""

    row: str
    title: str
    store: str
    surface: str
    mode: str
    run: Cell

    @property
    def name(self) -> str:
        """How it is called on the terminal."""
        return f"{self.row} {self.store} {self.surface} {self.mode}"


class Done(Struct, kw_only=True):
    """A cell that was run."""

    row: str
    title: str
    store: str
    surface: str
    mode: str
    seconds: float
    result: Result | None = None
    error: str = ""
    kept: list[str] = []
    """Where its histories are, if it did not pass."""

    @property
    def passed(self) -> bool:
        """Whether it ran and kept its promise."""
        return self.result is not None and self.result.passed


CELLS: list[Entry] = []


def cell(
    row: str,
    title: str,
    stores: tuple[str, ...],
    *,
    surface: str = "function",
    mode: str = "keyed",
) -> Callable[[Cell], Cell]:
    """The function is run once for each of the stores."""

    def add(run: Cell) -> Cell:
        CELLS.extend(Entry(row, title, store, surface, mode, run) for store in stores)
        return run

    return add
