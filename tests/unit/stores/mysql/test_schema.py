"""What a server must be like, and the migrations."""

from datetime import UTC, datetime

import pytest

from oncekey.errors import ConfigurationError
from oncekey.stores.mysql import schema

THEN = datetime(2026, 1, 1, 0, 0, 0, 1, UTC)
LATER = datetime(2026, 1, 1, 0, 0, 0, 1001, UTC)
FIT = ("10.11.19-MariaDB-log", "0", "MIXED", 1, THEN, 0, LATER, 16_777_216)


def _with(**changed):
    names = ("version", "read_only", "binlog", "logged", "before", "slept", "after", "packet")
    return tuple((dict(zip(names, FIT, strict=True)) | changed).values())


@pytest.mark.parametrize(
    "row",
    [
        FIT,
        _with(version="10.6.0-MariaDB"),
        _with(version="11.8.2-MariaDB", read_only="OFF"),
        _with(version="8.0.11"),
        _with(version="8.4.3-commercial"),
        _with(binlog="STATEMENT", logged=0),
    ],
)
def test_a_server_that_keeps_the_promises_is_taken(row):
    schema.check_server(row, "db:3306/app")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (_with(version="10.5.29-MariaDB"), "needs 10.6 or newer"),
        (_with(version="5.7.44-log"), "MySQL at db:3306/app is version 5.7.44-log"),
        (_with(read_only="1"), "is read-only, as a replica is"),
        (_with(read_only="ON"), "is read-only, as a replica is"),
        (_with(after=THEN), "runs with sysdate-is-now"),
        (_with(binlog="STATEMENT"), "binlog_format=STATEMENT"),
    ],
)
def test_a_server_that_would_break_a_promise_is_refused(row, words):
    with pytest.raises(ConfigurationError) as refused:
        schema.check_server(row, "db:3306/app")
    assert words in str(refused.value)


def test_tables_must_be_in_innodb():
    ours = [("oncekey_schema", "InnoDB"), ("oncekey_records", "InnoDB")]
    assert schema.check_tables(ours, "db") is True
    assert schema.check_tables([("oncekey_of_somebody", "MyISAM")], "db") is False
    with pytest.raises(ConfigurationError, match="ALTER TABLE oncekey_records ENGINE = InnoDB"):
        schema.check_tables([*ours[:1], ("oncekey_records", "MyISAM")], "db")


def test_the_version_is_written_last_and_each_step_may_be_repeated():
    for step in schema.migrations():
        *before, last = step
        assert "INSERT INTO oncekey_schema" in last
        for number, statement in enumerate(before):
            code = "\n".join(
                line for line in statement.split("\n") if not line.startswith("--")
            ).strip()
            if code.startswith("CREATE PROCEDURE"):
                name = code.split()[2].partition("(")[0]
                assert before[number - 1].endswith(f"DROP PROCEDURE IF EXISTS {name}")
            else:
                assert code.startswith(("CREATE TABLE IF NOT EXISTS", "DROP PROCEDURE IF EXISTS"))


def test_a_schema_of_a_newer_release_may_be_refused():
    known = len(schema.migrations())
    assert schema.missing([(known, 1)]) == ()
    assert schema.missing([(known + 1, known)]) == ()
    assert schema.missing(()) == schema.migrations()
    with pytest.raises(ConfigurationError, match="upgrade oncekey here as well"):
        schema.missing([(known + 1, known + 1)])
