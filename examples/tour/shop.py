"""What the tour is about: a shop that charges cards at a bank.

`python -m examples.tour` makes the folder and names it in the environment, so that the process
that gets killed on the way uses the same files.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from examples.tour import FOLDER
from oncekey import Once

folder = Path(os.environ.get(FOLDER) or tempfile.mkdtemp(prefix="oncekey-tour-"))
once = Once(f"sqlite:///{folder}/records.db")


@dataclass
class Order:
    """What a customer wants to pay."""

    id: str
    amount: int


@dataclass
class Receipt:
    """What a customer gets for it."""

    number: str
    amount: int


class Bank:
    """It has never heard of Oncekey: it books whatever it is asked to, in a file of its own."""

    def __init__(self, file: Path) -> None:
        """The book is empty until somebody books."""
        self._file = file

    def book(self, order: str) -> str:
        """The order is booked, once more; the answer is the number of the booking."""
        with self._file.open("a", encoding="utf-8") as book:
            book.write(f"{order}\n")
        return f"bank-{len(self._orders())}"

    def times(self, order: str) -> int:
        """How often the order was booked."""
        return self._orders().count(order)

    def _orders(self) -> list[str]:
        return self._file.read_text("utf-8").splitlines() if self._file.exists() else []


bank = Bank(folder / "bank.txt")
