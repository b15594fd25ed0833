"""The schema of the PostgreSQL store moves on, and releases before and after it go on working."""

import subprocess
import sys

import pytest

from oncekey import ConfigurationError
from oncekey.core.requests import Busy, Replay
from oncekey.stores.postgres import schema
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url

__all__ = ["beside", "colour", "postgres", "postgres_url"]

MINUTE = 60_000_000
KNOWN = len(schema.migrations())
EXPANDING = """
    ALTER TABLE oncekey_records ADD COLUMN colour text NOT NULL DEFAULT 'none';
    CREATE INDEX ON oncekey_records (colour);
    CREATE FUNCTION oncekey_purge_v2(p_grace bigint, p_limit bigint) RETURNS bigint
        LANGUAGE sql AS 'SELECT oncekey_purge_v1(p_grace, p_limit)';
    UPDATE oncekey_schema SET version = version + 1;
"""
CONTRACTING = """
    DROP FUNCTION oncekey_purge_v1;
    UPDATE oncekey_schema SET version = version + 1, oldest = version + 1;
"""


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


@pytest.fixture
def released(monkeypatch):
    """Stores that are opened from now on belong to a release with these migrations more."""

    def release(*more):
        steps = tuple(step.encode() for step in more)
        monkeypatch.setattr(schema, "migrations", lambda: (*ours, *steps))

    ours = schema.migrations()
    return release


def versions(connection):
    return connection.execute("SELECT version, oldest FROM oncekey_schema").fetchall()


def test_a_fresh_database_has_the_schema_of_this_release(postgres_url, colour, beside):
    desk_of(colour(postgres_url)).grant("a")
    assert versions(beside(postgres_url)) == [(1, 1)]


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
    assert versions(beside(postgres_url)) == [(KNOWN + 1, 1)]
    assert desk_of(old).settle(owner) is DONE  # on a connection that knew the schema before
    assert type(desk_of(new).claim("b")) is Replay
    desk_of(old, "next").grant("a")
    released()
    late = colour(postgres_url)  # the old release, started after the new one
    assert type(desk_of(late).claim("b")) is Replay
    owner = desk_of(late, "late").grant("a")
    assert desk_of(new, "late").settle(owner) is DONE
    assert late.purge(0, 10) == 0
    assert versions(beside(postgres_url)) == [(KNOWN + 1, 1)]


def test_a_release_that_a_schema_has_left_behind_is_refused(postgres_url, colour, beside, released):
    released(EXPANDING, CONTRACTING)
    desk_of(colour(postgres_url)).grant("a")
    newest = len(schema.migrations())
    assert versions(beside(postgres_url)) == [(newest, newest)]
    released()
    before = beside(postgres_url).execute("SELECT * FROM oncekey_records").fetchall()
    with pytest.raises(ConfigurationError) as caught:
        desk_of(colour(postgres_url)).claim("a")
    assert str(caught.value) == (
        f"the PostgreSQL schema was brought to version {newest} by a newer release and needs one "
        f"that knows {newest}, this one knows {newest - 2}; upgrade oncekey here as well"
    )
    assert beside(postgres_url).execute("SELECT * FROM oncekey_records").fetchall() == before


def test_an_older_schema_is_brought_up_to_date_with_its_records(
    postgres_url, colour, beside, released
):
    owner = desk_of(colour(postgres_url)).grant("a")
    released(EXPANDING)
    store = colour(postgres_url)
    assert desk_of(store).get() == owner
    assert versions(beside(postgres_url)) == [(KNOWN + 1, 1)]


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
    printed = [one.communicate("go\n", timeout=PATIENCE)[0].strip() for one in crowd]
    assert sorted(printed) == ["False"] * 5 + ["True"]
    assert len(versions(beside(postgres_url))) == 1


WRITTEN = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE n_tup_ins >= 20"


def test_a_settle_changes_no_index(postgres_url, colour, beside, until):
    """The row stays in its page: PostgreSQL calls it a heap-only tuple."""
    store = colour(postgres_url)
    for number in range(20):
        desk = desk_of(store, f"order-{number}")
        assert desk.settle(desk.grant("a")) is DONE
    store.close()  # a session that ends says what it has done
    watching = beside(postgres_url)

    def written():
        return watching.execute(WRITTEN).fetchone()

    until(written)
    assert written() == (20, 20)
