"""PostgreSQL: a new key and a duplicate, against raw prepared statements on the same server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import psycopg

from bench.report.rows import Row, rate_row
from bench.settings import Settings
from bench.subject import new_order, protect
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once
from tests.servers.postgres import binaries, serving

_LEAST_SPEED: Final = 0.88
TABLE: Final = "CREATE TABLE done (key text PRIMARY KEY, status text NOT NULL, result bytea)"
_CLAIM: Final = "INSERT INTO done VALUES (%s, 'running') ON CONFLICT DO NOTHING"
_SETTLE: Final = "UPDATE done SET status = 'completed', result = %s WHERE key = %s"
_READ: Final = "SELECT status, result FROM done WHERE key = %s"
_RAW: Final = {
    "new": "raw psycopg, prepared INSERT + UPDATE, each committed, 1 caller",
    "duplicate": "raw psycopg, prepared SELECT by primary key",
}


def postgres_rows(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """Rates of one caller. The local cache is off, so that every duplicate asks the server."""
    try:
        binaries()
    except RuntimeError:
        timings = None
    else:
        timings = _timings(folder, settings, tick)
    return [
        _row(timings, "new", "new key", _LEAST_SPEED),
        _row(timings, "duplicate", "duplicate, cache off"),
    ]


def _timings(folder: Path, settings: Settings, tick: Tick) -> Timings:
    with ExitStack() as opened:
        sides: dict[str, Side] = {}
        for name in ("", " hasty"):  # the second has fsync off: nothing hides behind the disk
            server = opened.enter_context(serving(beside=folder.parent, durable=not name))
            url = server.new_database()
            raw = opened.enter_context(psycopg.connect(url, autocommit=True))
            once = opened.enter_context(closing(Once(url, cache=False)))
            raw.execute(TABLE)
            if not name:
                sides |= _duplicates(raw, once, settings.reads)
            sides[f"raw new{name}"] = Side(pairs(raw), settings.commits)
            sides[f"new{name}"] = Side(keys(once), settings.commits)
        return interleave(sides, rounds=settings.rounds, tick=tick)


def pairs(raw: psycopg.Connection) -> Callable[[int], None]:
    """A claim and its completion, each committed on its own."""

    def work(calls: int) -> None:
        for _ in range(calls):
            key = new_order()
            raw.execute(_CLAIM, (key,), prepare=True)
            raw.execute(_SETTLE, (b"receipt of an order over 40", key), prepare=True)

    return work


def keys(once: Once) -> Callable[[int], None]:
    charge = protect(once)

    def work(calls: int) -> None:
        for _ in range(calls):
            charge(new_order(), 40)

    return work


def _duplicates(raw: psycopg.Connection, once: Once, reads: int) -> dict[str, Side]:
    charge, order = protect(once), new_order()
    raw.execute(_CLAIM, (order,))
    raw.execute(_SETTLE, (charge(order, 40).encode(), order))
    assert charge.outcome(order, 40).duplicate

    def selects(calls: int) -> None:
        for _ in range(calls):
            raw.execute(_READ, (order,), prepare=True).fetchone()

    def answers(calls: int) -> None:
        for _ in range(calls):
            charge(order, 40)

    return {"raw duplicate": Side(selects, reads), "duplicate": Side(answers, reads)}


def _row(timings: Timings | None, side: str, title: str, least: float | None = None) -> Row:
    return rate_row(
        timings,
        side,
        id_=f"postgres-{side}",
        title=f"PostgreSQL, {title}, 1 caller",
        against=_RAW[side],
        remark=_remark(timings, side),
        least=least,
    )


def _remark(timings: Timings | None, side: str) -> str:
    if timings is None:
        return "no PostgreSQL was found"
    if side != "new":
        return ""
    return (
        f"a raw pair took {timings.per_call('raw new') * 1e6:,.0f} µs, most of it waiting for the "
        f"disk; with fsync=off on both sides it took "
        f"{timings.per_call('raw new hasty') * 1e6:,.0f} µs, and the ratio was "
        f"{timings.speed('new hasty', 'raw new hasty').median:.2f}x"
    )
