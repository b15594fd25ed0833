"""A payment gateway that keeps a book, so that anybody can count what was really charged.

It takes 80 ms, refuses amounts that 7 divides, is unavailable for those that 11 divides, and never
answers for those that 13 divides, although it charges them. It does NOT recognise a reference that
it has seen: charging twice is possible, and shows.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Reason = Literal["insufficient_funds", "gateway_unavailable", "unknown"]

SECONDS = 0.08
NO_FUNDS, UNAVAILABLE, SILENT = 7, 11, 13


@dataclass(frozen=True)
class Charge:
    """One line of the book. Without a reason it is money."""

    number: int
    reference: str
    amount: float
    currency: str
    request_id: str
    reason: Reason | None


class Gateway:
    """The gateway, as its clients see it; the book is a file that all of them share."""

    def __init__(self, book: Path | str, seconds: float = SECONDS) -> None:
        """An empty book, or one that others have written to."""
        self._book = str(book)
        self._seconds = seconds
        with closing(self._open()) as file, file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS charges (number INTEGER PRIMARY KEY, reference TEXT, "
                "amount TEXT, currency TEXT, request_id TEXT, reason TEXT)"
            )

    async def charge(self, reference: str, amount: float, currency: str, request_id: str) -> Charge:
        """The charge, written into the book."""
        await asyncio.sleep(self._seconds)
        charge = self._written(reference, amount, currency, request_id)
        if amount % SILENT == 0:
            await asyncio.Event().wait()  # the answer never comes
        return charge

    async def find(self, reference: str) -> Charge | None:
        """The last charge under a reference, if there is one."""
        found = [charge for charge in self.charges() if charge.reference == reference]
        return found[-1] if found else None

    def charges(self) -> list[Charge]:
        """The whole book, in order."""
        with closing(self._open()) as file:
            rows = file.execute("SELECT * FROM charges ORDER BY number").fetchall()
        return [
            Charge(number, reference, json.loads(amount), currency, request_id, reason)
            for number, reference, amount, currency, request_id, reason in rows
        ]

    def _written(self, reference: str, amount: float, currency: str, request_id: str) -> Charge:
        reason = _reason(amount)
        with closing(self._open()) as file, file:
            # The amount is text: a number of SQLite would not come back as it was sent.
            number = file.execute(
                "INSERT INTO charges (reference, amount, currency, request_id, reason) "
                "VALUES (?, ?, ?, ?, ?)",
                (reference, json.dumps(amount), currency, request_id, reason),
            ).lastrowid
        assert number is not None
        return Charge(number, reference, amount, currency, request_id, reason)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._book, timeout=10)


def _reason(amount: float) -> Reason | None:
    if amount % NO_FUNDS == 0:
        return "insufficient_funds"
    if amount % UNAVAILABLE == 0:
        return "gateway_unavailable"
    return None
