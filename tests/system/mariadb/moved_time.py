"""A time for a MariaDB under test that the test moves.

The procedures read the server's clock. In a database of the test they read a table instead, so that
the model can stop at a microsecond. Nothing else of them changes.
"""

from oncekey.stores.mysql import schema

TABLES = ("oncekey_records", "oncekey_audit", "oncekey_activity")
START = 1_767_225_600_000_000
_REAL = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
_MOVED = "(SELECT now FROM moved_clock)"


class MovedTime:
    """A clock in the server that stands still until somebody moves it."""

    def __init__(self, server, database):
        self.url = server.url(database)
        self._connection = server.connected(database)
        (step,) = schema.migrations()
        moved = [one.replace(_REAL, _MOVED) for one in step]
        assert sum(one != two for one, two in zip(step, moved, strict=True)) > 10
        self._say(
            "SET sql_mode = 'STRICT_ALL_TABLES'",
            "CREATE TABLE moved_clock (now BIGINT NOT NULL) ENGINE = InnoDB",
            f"INSERT INTO moved_clock VALUES ({START})",  # noqa: S608 - a number
            *moved,
        )
        self._now = START

    def _say(self, *statements):
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def start_again(self):
        self._say(*(f"DELETE FROM {table}" for table in TABLES))  # noqa: S608 - constants
        self.tick(START - self._now)

    def __call__(self):
        return self._now

    def tick(self, microseconds):
        self._now += microseconds
        self._say(f"UPDATE moved_clock SET now = {self._now}")  # noqa: S608 - a number

    def close(self):
        self._connection.close()
