"""What a new key is made of: `python -m tests.system.mariadb.floor [ROUNDS]`.

It starts a MariaDB and prints, for each way from a pair of raw statements to a protected function,
the microseconds of processor time that the client and the server spend on one key, and how often
the server counts a commit: a statement inside of a transaction counts as one. The ways take turns,
and of the rounds the best tenth counts, so that a busy machine changes little.
"""

import asyncio
import secrets
import sys
import time
from contextlib import ExitStack, closing
from functools import partial
from itertools import count

import asyncmy

from oncekey import Once
from oncekey.core.requests import Claim, Settle
from oncekey.stores import MySQLStore
from oncekey.stores.mysql import schema
from oncekey.stores.mysql import statements as sql
from tests.system.mariadb.server import serving

KEYS = 64
CONNECTIONS = 16
DAY = 86_400_000_000
RESULT = b"receipt of an order over 40"
RAW = (
    "CREATE TABLE done (`key` VARBINARY(255) PRIMARY KEY, status VARCHAR(20) NOT NULL, "
    "result LONGBLOB) ENGINE = InnoDB"
)
COLUMNS = (
    "scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, noted, revision, "
    "uncertain, label, reference, created, started, updated, finished, expires, version, hand, due"
)
ROW = "'', {0}, 'running', '1:ffff', 1, 'nonce', 1, 1, '', 0, 0, 'pay', '', 1, 1, 1, 0, 1, 1, '', 1"
END = "status = 'completed', result = 'receipt of an order over 40'"
ASKED = (
    "SELECT SUM(variable_value) FROM information_schema.global_status "
    "WHERE variable_name = 'Handler_commit'"
)

numbers = count()


def new_key():
    return f"order-{next(numbers)}-{secrets.token_hex(4)}"


def claim(key):
    return Claim("pay", key, nonce="n" * 22, fingerprint="1:ffff", lease=DAY, ttl=DAY)


def settle(key, token):
    ended = {"status": "completed", "result": RESULT, "error": None, "ttl": DAY}
    return Settle("pay", key, token=token, nonce="n" * 22, **ended)


def one_caller(stack, server, name):
    """Ways of one caller, each a function that makes a key."""
    connection = stack.enter_context(server.connected(name))
    store = stack.enter_context(closing(MySQLStore(server.url(name))))
    once = stack.enter_context(closing(Once(server.url(name), cache=False)))
    pay = once(key=lambda key: key, scope="pay")(lambda _key: RESULT.decode())

    def say(statement):
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    for statement in (*schema.SESSION, RAW):
        say(statement)
    say("CREATE PROCEDURE nothing() SQL SECURITY INVOKER BEGIN END")
    store.get(None, "the schema")

    def nothing():
        say("CALL nothing()")
        say("CALL nothing()")

    def pair(table, columns, row, rest):
        key = sql.literal(new_key())
        say(f"INSERT IGNORE INTO {table} ({columns}) VALUES ({row.format(key)})")  # noqa: S608 - constants
        say(f"UPDATE {table} SET {END} WHERE `key` = {key} AND {rest}")  # noqa: S608 - constants

    def calls():
        key = new_key()
        say(sql.settle(settle(key, say(sql.claim(claim(key)))[0][0])))

    def verbs():
        key = new_key()
        store.settle(settle(key, store.claim(claim(key)).record.token))

    return {
        "two CALLs of nothing": nothing,
        "raw pair": partial(pair, "done", "`key`, status", "{0}, 'running'", "TRUE"),
        "our row, raw pair": partial(pair, "oncekey_records", COLUMNS, ROW, "scope = ''"),
        "our CALLs": calls,
        "claim and settle": verbs,
        "protected function": lambda: pay(new_key()),
    }


def many_tasks(stack, runner, server, name):
    """Ways of 64 tasks, each a function that makes a key in every task."""
    run = runner.run
    once = Once(server.url(name), cache=False)
    stack.callback(lambda: run(once.aclose()))
    pay = once(key=lambda key: key, scope="pay")(_receipt)
    pool = run(
        _opened(host="127.0.0.1", port=server.port, user="root", database=name, autocommit=True)
    )
    stack.callback(lambda: run(_closed(pool)))

    async def pair(key):
        for statement in (
            f"INSERT IGNORE INTO done (`key`, status) VALUES ('{key}', 'running')",  # noqa: S608 - constants
            f"UPDATE done SET {END} WHERE `key` = '{key}'",  # noqa: S608 - constants
        ):
            async with pool.acquire() as connection, connection.cursor() as cursor:
                await cursor.execute(statement)

    return {
        f"{KEYS} tasks, raw pair": lambda: run(_together(pair)),
        f"{KEYS} tasks, protected": lambda: run(_together(pay)),
    }


async def _receipt(_key):
    return RESULT.decode()


async def _opened(**settings):
    return await asyncmy.create_pool(minsize=CONNECTIONS, maxsize=CONNECTIONS, **settings)


async def _closed(pool):
    pool.close()
    await pool.wait_closed()


async def _together(way):
    await asyncio.gather(*(way(new_key()) for _ in range(KEYS)))


def main(rounds):
    with ExitStack() as stack:
        server = stack.enter_context(serving("--innodb-flush-log-at-trx-commit=1"))
        name = server.new_database()
        runner = stack.enter_context(asyncio.Runner())
        ways = {way: (work, KEYS) for way, work in one_caller(stack, server, name).items()}
        tasks = many_tasks(stack, runner, server, name)
        ways |= {way: (work, 1) for way, work in tasks.items()}
        theirs = (~server.process.pid << 3) | 2  # the clock of all threads of that process
        spent = {way: [] for way in ways}
        commits = {}
        for number in range(rounds + 2):
            for way, (work, times) in ways.items():
                before = server.say(ASKED)[0][0]
                began = time.process_time_ns(), time.clock_gettime_ns(theirs)
                for _ in range(times):
                    work()
                ended = time.process_time_ns(), time.clock_gettime_ns(theirs)
                commits[way] = (server.say(ASKED)[0][0] - before) / KEYS
                if number > 1:
                    spent[way].append([(b - a) / 1000 for a, b in zip(began, ended, strict=True)])
        for way, took in spent.items():
            best = max(1, rounds // 10)
            sides = [sum(sorted(one)[:best]) / best / KEYS for one in zip(*took, strict=True)]
            sys.stdout.write(
                f"{way:24} client {sides[0]:4.0f} us  server {sides[1]:4.0f} us  "
                f"commits {commits[way]:.2f}\n"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
