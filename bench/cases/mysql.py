"""MariaDB: new keys and duplicates, against raw statements of the drivers on the same server.

The server is the Debian package, which `python -m tests.system.packages` installs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncmy

from bench.cases.many import Tasks, fenced
from bench.report.rows import Row, rate_row
from bench.settings import Settings
from bench.subject import new_order, protect, protect_async
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once
from oncekey.stores import open_store
from tests.system.mariadb.server import MariaDBServer, serving
from tests.system.packages import find_mariadb

if TYPE_CHECKING:
    import pymysql

_LEAST_SPEED: Final = 0.75
_LEAST_SPEED_OF_TASKS: Final = 3.0
_CONNECTIONS: Final = 16
_KEPT: Final = b"receipt of an order over 40"
_TABLE: Final = (
    "CREATE TABLE done (`key` VARBINARY(255) PRIMARY KEY, status VARCHAR(20) NOT NULL, "
    "result LONGBLOB) ENGINE = InnoDB"
)
_CLAIM: Final = "INSERT IGNORE INTO done VALUES (%s, 'running', NULL)"
_SETTLE: Final = "UPDATE done SET status = 'completed', result = %s WHERE `key` = %s"
_READ: Final = "SELECT status, result FROM done WHERE `key` = %s"
_DURABLE: Final = ("--innodb-flush-log-at-trx-commit=1",)
_RAW: Final = {
    "new": "raw PyMySQL, INSERT + UPDATE, each committed, 1 caller",
    "duplicate": "raw PyMySQL, SELECT by primary key",
    "new-tasks": f"raw asyncmy, INSERT + UPDATE, pool of {_CONNECTIONS}",
}


def mysql_rows(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """Rates of one caller, and of tasks. The local cache is off, so that each asks the server."""
    timings = None if find_mariadb() is None else _timings(folder, settings, tick)
    return [
        _row(timings, "new", "new key, 1 caller", _LEAST_SPEED),
        _row(timings, "duplicate", "duplicate, cache off, 1 caller"),
        _row(timings, "new-tasks", f"new key, {settings.tasks} tasks", _LEAST_SPEED_OF_TASKS),
    ]


def _timings(folder: Path, settings: Settings, tick: Tick) -> Timings:
    with ExitStack() as opened:
        server = opened.enter_context(serving(*_DURABLE, beside=folder.parent))
        name = server.new_database()
        server.say(_TABLE, database=name)
        url = server.url(name)
        raw: Any = opened.enter_context(server.connected(name))
        once = opened.enter_context(closing(Once(url, cache=False)))
        fenced(opened.enter_context(closing(open_store(url))))
        sides = {
            **_duplicates(raw, once, settings.reads),
            "raw new": Side(_pairs(raw), settings.commits),
            "new": Side(_keys(once), settings.commits),
        }
        tasks = Tasks(settings.tasks)
        opened.callback(tasks.runner.close)
        return interleave(
            sides | _tasks(opened, tasks, server, name, settings),
            rounds=settings.rounds,
            tick=tick,
        )


def _said(raw: pymysql.Connection[Any], statement: str, *values: object) -> Any:
    with raw.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()


def _pairs(raw: pymysql.Connection[Any]) -> Callable[[int], None]:
    """A claim and its completion, each committed on its own."""

    def work(calls: int) -> None:
        for _ in range(calls):
            key = new_order()
            _said(raw, _CLAIM, key)
            _said(raw, _SETTLE, _KEPT, key)

    return work


def _keys(once: Once) -> Callable[[int], None]:
    charge = protect(once)

    def work(calls: int) -> None:
        for _ in range(calls):
            charge(new_order(), 40)

    return work


def _duplicates(raw: pymysql.Connection[Any], once: Once, reads: int) -> dict[str, Side]:
    charge, order = protect(once), new_order()
    _said(raw, _CLAIM, order)
    _said(raw, _SETTLE, charge(order, 40).encode(), order)
    assert charge.outcome(order, 40).duplicate

    def selects(calls: int) -> None:
        for _ in range(calls):
            _said(raw, _READ, order)

    def answers(calls: int) -> None:
        for _ in range(calls):
            charge(order, 40)

    return {"raw duplicate": Side(selects, reads), "duplicate": Side(answers, reads)}


def _tasks(
    opened: ExitStack, tasks: Tasks, server: MariaDBServer, name: str, settings: Settings
) -> dict[str, Side]:
    run, calls = tasks.runner.run, settings.threads * settings.each
    once = Once(server.url(name), cache=False)
    opened.callback(lambda: run(once.aclose()))
    charge = protect_async(once)

    async def fill() -> Any:
        return await asyncmy.create_pool(
            minsize=_CONNECTIONS,
            maxsize=_CONNECTIONS,
            host="127.0.0.1",
            port=server.port,
            user="root",
            database=name,
            autocommit=True,
        )

    pool = run(fill())

    async def empty() -> None:
        pool.close()
        await pool.wait_closed()

    opened.callback(lambda: run(empty()))

    async def pair(key: str) -> None:
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(_CLAIM, (key,))
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(_SETTLE, (_KEPT, key))

    return {
        "raw new-tasks": tasks.side(pair, calls),
        "new-tasks": tasks.side(lambda order: charge(order, 40), calls),
    }


def _row(timings: Timings | None, side: str, title: str, least: float | None = None) -> Row:
    return rate_row(
        timings,
        side,
        id_=f"mysql-{side}",
        title=f"MariaDB, {title}",
        against=_RAW[side],
        remark="no MariaDB was found" if timings is None else "",
        least=least,
    )
