"""The schema of the PostgreSQL store moves on, and releases before and after it go on working."""

import subprocess
import sys

import pytest

from oncekey import ConfigurationError
from oncekey.core.requests import Busy, Replay
from oncekey.stores.postgres import schema
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE
from tests.servers import postgres_release_2 as older
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
    assert versions(beside(postgres_url)) == [(len(schema.migrations()), 2)]


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
    assert versions(beside(postgres_url)) == [(KNOWN + 1, 2)]
    assert desk_of(old).settle(owner) is DONE  # on a connection that knew the schema before
    assert type(desk_of(new).claim("b")) is Replay
    desk_of(old, "next").grant("a")
    released()
    late = colour(postgres_url)  # the old release, started after the new one
    assert type(desk_of(late).claim("b")) is Replay
    owner = desk_of(late, "late").grant("a")
    assert desk_of(new, "late").settle(owner) is DONE
    assert late.purge(0, 10) == 0
    assert versions(beside(postgres_url)) == [(KNOWN + 1, 2)]


def lived(old, key):
    """A key through every verb of the older release."""
    told, owner = old.claim(key, "a")
    assert told == "granted"
    assert old.claim(key, "a")[1]["token"] == owner["token"]
    assert old.claim(key, "b")[0] == "busy"
    assert 0 < old.number(older.WATCH, "", key, owner["token"]) <= older.MINUTE
    assert old.owner(older.RENEW, key, owner, older.MINUTE, older.MINUTE) == "done"
    assert old.owner(older.NOTE, key, owner, b"noted", 1) == "done"
    ways = (None, True, True, False, older.MINUTE, older.MINUTE)
    assert old.owner(older.RELEASE, key, owner, *ways) == "done"
    assert old.claim(key, "b")[0] == "held"
    ends = ("released", None, None, older.MINUTE)
    assert old.word(older.RESOLVE, "", key, owner["token"], *ends) == "done"
    told, second = old.claim(key, "c")
    assert (told, second["noted"]) == ("granted", b"noted")
    ends = ("completed", b"paid", None, older.MINUTE)
    assert old.owner(older.SETTLE, key, second, *ends) == "done"
    told, record = old.claim(key, "d")
    assert (told, record["status"], record["result"]) == ("replay", "completed", b"paid")
    assert old.get(key) == record
    assert old.number(older.PURGE, 0, 10) == 0
    assert old.word(older.FORGET, "", key, record["token"], False) == "done"


def test_the_code_of_an_older_release_runs_on_the_newest_schema(
    postgres_url, colour, beside, released
):
    """On connections from before, and on new ones; with what either side wrote."""
    desk_of(colour(postgres_url)).grant("a")
    early = older.Release2(beside(postgres_url))
    for number in range(7):  # past the plans that a session makes for each call anew
        lived(early, f"warm-{number}")
    told, theirs = early.claim("theirs", "a")
    assert told == "granted"
    released(EXPANDING)
    new = colour(postgres_url)
    ours = desk_of(new, "ours").grant("a")
    late = older.Release2(beside(postgres_url))
    for old in (early, late):
        version, oldest = old.word(older.READ).split()
        assert int(version) > older.KNOWN >= int(oldest)
        lived(old, "order-9")
        assert old.claim("ours", "b")[0] == "busy"
    assert type(desk_of(new, "theirs").claim("b")) is Busy
    ends = ("completed", b"paid", None, MINUTE)
    assert late.owner(older.SETTLE, "theirs", theirs, *ends) == "done"
    assert desk_of(new, "theirs").claim("b").record.result == b"paid"
    assert desk_of(new, "ours").settle(ours) is DONE
    assert early.claim("ours", "b")[0] == "replay"


SAME = """
    SELECT one.prosrc = other.prosrc, one.proconfig, other.proconfig
    FROM pg_proc one, pg_proc other WHERE one.proname = %s AND other.proname = %s
"""


@pytest.mark.parametrize(
    ("bound", "other"),
    [("oncekey_claim_v3", "oncekey_claim_v2"), ("oncekey_settle_v2", "oncekey_settle_v1")],
)
def test_the_verbs_of_a_bound_session_differ_by_nothing_else(
    postgres_url, colour, beside, bound, other
):
    """So what the suite of every store proves of the one, it proves of the other."""
    desk_of(colour(postgres_url)).grant("a")
    found = beside(postgres_url).execute(SAME, [bound, other]).fetchall()
    assert found == [(True, None, ["lock_timeout=4s"])]


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
    assert versions(beside(postgres_url)) == [(KNOWN + 1, 2)]


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
INDEXES = "SELECT indexname FROM pg_indexes WHERE tablename = 'oncekey_records' ORDER BY 1"


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


def test_a_large_table_gets_no_index_while_others_write(postgres_url, colour, beside, monkeypatch):
    before, (newest, *later) = schema.migrations()[:2], schema.migrations()[2:]
    monkeypatch.setattr(schema, "migrations", lambda: before)
    colour(postgres_url).get(None, "order-1")
    older.Release2(beside(postgres_url)).claim("order-1", "a")
    assert newest.count(b"512 * 1024 * 1024") == 1
    large = newest.replace(b"512 * 1024 * 1024", b"0")
    monkeypatch.setattr(schema, "migrations", lambda: (*before, large, *later))
    desk_of(colour(postgres_url), "next").grant("a")
    assert versions(beside(postgres_url)) == [(KNOWN, 2)]
    named = [name for (name,) in beside(postgres_url).execute(INDEXES)]
    assert named == ["oncekey_records_due", "oncekey_records_pkey"]
