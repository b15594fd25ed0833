"""Measure drivers: `python -m tests.system.mariadb.drivers` prints what a call costs in each.

It calls an empty procedure of a MariaDB that it starts, and prints the microseconds of CPU time
that this process spends on each call. aiomysql and mysql-connector-python are measured where
somebody has installed them.
"""

import asyncio
import sys
from importlib import import_module
from time import process_time

from tests.system.mariadb.server import serving

CALLS = 4000
TASKS = 8
CALL = "CALL answer(7, x'616263')"
MADE = "CREATE PROCEDURE answer(a BIGINT, b VARBINARY(255)) BEGIN SELECT a; END"


def blocking(module, settings):
    connection = module.connect(**settings)
    begin = process_time()
    for _ in range(CALLS):
        cursor = connection.cursor()
        cursor.execute(CALL)
        cursor.fetchall()
        while cursor.nextset():
            pass
        cursor.close()
    spent = process_time() - begin
    connection.close()
    return spent


async def coroutines(module, settings):
    connections = [await module.connect(**settings) for _ in range(TASKS)]
    begin = process_time()
    await asyncio.gather(*(_calls(one) for one in connections))
    spent = process_time() - begin
    for one in connections:
        one.close()
    return spent


async def _calls(connection):
    for _ in range(CALLS // TASKS):
        async with connection.cursor() as cursor:
            await cursor.execute(CALL)
            await cursor.fetchall()


def main():
    with serving() as server:
        name = server.new_database()
        server.say(MADE, database=name)
        settings = {"host": "127.0.0.1", "port": server.port, "user": "root", "password": ""}
        for driver in ("pymysql", "mysql.connector", "asyncmy", "aiomysql"):
            try:
                module = import_module(driver)
            except ImportError:
                sys.stdout.write(f"{driver}: not installed\n")
                continue
            named = {"db" if driver == "aiomysql" else "database": name, "autocommit": True}
            if driver in ("asyncmy", "aiomysql"):
                spent = asyncio.run(coroutines(module, settings | named))
            else:
                spent = blocking(module, settings | named)
            sys.stdout.write(f"{driver}: {spent / CALLS * 1e6:.0f} us of CPU time a call\n")


if __name__ == "__main__":
    main()
