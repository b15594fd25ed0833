"""Two ways to time for a PostgreSQL under test: its own, and one that a test moves.

The functions of the store call `clock_timestamp()`. A session that looks into the schema `moved`
before it looks into PostgreSQL's own finds another one there, which reads a table.
"""

import psycopg

START = 1_767_225_600_000_000
_PATH = "?options=-csearch_path%3Dpublic%2Cmoved%2Cpg_catalog"
_MADE = """
    CREATE SCHEMA IF NOT EXISTS moved;
    CREATE TABLE IF NOT EXISTS moved.clock (now bigint NOT NULL);
    CREATE OR REPLACE FUNCTION moved.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS 'SELECT timestamptz ''epoch'' + now * interval ''1 microsecond'' FROM moved.clock';
    DELETE FROM moved.clock;
"""


class MovedTime:
    """A clock in the server that stands still until somebody moves it."""

    def __init__(self, url):
        self.url = url + _PATH
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_MADE)
        self._connection.execute("INSERT INTO moved.clock VALUES (%s)", [START])
        self._now = START

    def start_again(self):
        self.tick(START - self._now)

    def __call__(self):
        return self._now

    def tick(self, microseconds):
        self._now += microseconds
        self._connection.execute("UPDATE moved.clock SET now = %s", [self._now])

    def close(self):
        self._connection.close()
