"""The schema of the PostgreSQL store moves on, and releases before and after it go on working."""

import subprocess
import sys

import pytest

from oncekey import ConfigurationError
from oncekey.stores import postgres_schema as schema
from oncekey.testing.suite.desk import DONE, Desk
from oncekey.verbs import Busy, Replay
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url

__all__ = ["beside", "colour", "postgres", "postgres_url"]

MINUTE = 60_000_000
EXPANDING = """
    ALTER TABLE oncekey_records ADD COLUMN colour text;
    CREATE INDEX ON oncekey_records (colour);
    UPDATE oncekey_schema SET version = 3;
"""
CONTRACTING = """
    DROP FUNCTION oncekey_purge_v1;
    UPDATE oncekey_schema SET version = 4, oldest = 4;
"""


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


@pytest.fixture
def released(monkeypatch):
    """Stores that are opened from now on belong to a release with these migrations more."""

    def release(*more):
        monkeypatch.setattr(schema, "migrations", lambda: (*ours, *more))

    ours = schema.migrations()
    return release


def versions(connection):
    return connection.execute(schema.READ).fetchall()


def test_a_fresh_database_has_the_schema_of_this_release(postgres_url, colour, beside):
    desk_of(colour(postgres_url)).grant("a")
    assert versions(beside(postgres_url)) == [(len(schema.migrations()),) * 2]


def test_a_release_goes_on_while_a_newer_one_expands_the_schema(
    postgres_url, colour, beside, monkeypatch, released
):
    old = colour(postgres_url, size=1)
    for number in range(7):  # past the plans that a session makes for each call anew
        desk_of(old, f"warm-{number}").grant("a")
    owner = desk_of(old).grant("a")
    released(EXPANDING)
    new = colour(postgres_url)
    assert type(desk_of(new).claim("b")) is Busy
    assert versions(beside(postgres_url)) == [(3, 2)]
    assert desk_of(old).settle(owner) is DONE  # on a connection that knew the schema before
    assert type(desk_of(new).claim("b")) is Replay
    desk_of(old, "next").grant("a")
    released()
    late = colour(postgres_url)  # the old release, started after the new one
    assert type(desk_of(late).claim("b")) is Replay
    owner = desk_of(late, "late").grant("a")
    assert desk_of(new, "late").settle(owner) is DONE
    assert late.purge(0, 10) == 0
    assert versions(beside(postgres_url)) == [(3, 2)]


def test_a_release_that_a_schema_has_left_behind_is_refused(postgres_url, colour, beside, released):
    released(EXPANDING, CONTRACTING)
    desk_of(colour(postgres_url)).grant("a")
    assert versions(beside(postgres_url)) == [(4, 4)]
    released()
    with pytest.raises(ConfigurationError, match="upgrade oncekey here as well"):
        desk_of(colour(postgres_url)).claim("a")


def test_an_older_schema_is_brought_up_to_date_with_its_records(
    postgres_url, colour, beside, released
):
    owner = desk_of(colour(postgres_url)).grant("a")
    released(EXPANDING)
    store = colour(postgres_url)
    assert desk_of(store).get() == owner
    assert versions(beside(postgres_url)) == [(3, 2)]


def test_a_migration_that_fails_leaves_nothing_behind(postgres_url, colour, beside, released):
    released("CREATE TABLE half_way (); SELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        desk_of(colour(postgres_url)).claim("a")
    found = "SELECT to_regclass('oncekey_records'), to_regclass('half_way')"
    assert beside(postgres_url).execute(found).fetchall() == [(None, None)]


def test_several_processes_may_migrate_at_once(postgres_url, beside):
    code = (
        "import sys; from oncekey import Once; sys.stdin.readline();"
        "print(Once(sys.argv[1], observers=()).check('k'))"
    )
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code, postgres_url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(6)
    ]  # fmt: skip
    printed = [one.communicate("go\n", timeout=60)[0].strip() for one in crowd]
    assert sorted(printed) == ["False"] * 5 + ["True"]
    assert len(versions(beside(postgres_url))) == 1
