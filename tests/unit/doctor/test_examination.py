"""What the doctor finds about SQLite files, stores in memory, stores of others, and lifetimes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncekey import Once
from oncekey.doctor import examine, examine_async, finding, sqlite
from oncekey.errors import ConfigurationError, StoreError
from oncekey.events.settings import BusSettings
from oncekey.stores import MemoryStore, SQLiteStore, open_store

TABLE = """\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /mnt/share rw - nfs4 server:/export rw
24 22 0:22 / /mnt/share/local rw - xfs /dev/vdb rw
25 22 0:23 / /mnt/with\\040space rw - cifs //server/share rw
26 22 0:24 / /run/quick rw - tmpfs tmpfs rw
27 22 0:25 / /mnt/cloud rw master:3 - fuse.gcsfuse bucket rw
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/once.db", "ext4"),
        ("/mnt/share/once.db", "nfs4"),
        ("/mnt/shared/once.db", "ext4"),
        ("/mnt/share/local/deep/once.db", "xfs"),
        ("/mnt/with space/once.db", "cifs"),
        ("/run/quick/once.db", "tmpfs"),
        ("/mnt/cloud/once.db", "fuse.gcsfuse"),
    ],
)
def test_the_file_system_of_a_path_is_told_by_the_longest_mount(table, path, kind):
    assert sqlite.file_system(Path(path), table) == kind


def test_where_the_system_does_not_tell_nothing_is_guessed(tmp_path):
    assert sqlite.file_system(tmp_path, tmp_path / "none") == ""
    found = sqlite._place("", tmp_path, container=False)
    assert (found.severity, found.meaning) == (
        "warning",
        "nobody could look at on which file system the file is",
    )


@pytest.mark.parametrize(
    ("kind", "container", "severity"),
    [
        ("ext4", False, "fine"),
        ("ext4", True, "fine"),
        ("nfs4", False, "danger"),
        ("fuse.sshfs", False, "danger"),
        ("tmpfs", False, "warning"),
        ("overlay", True, "warning"),
        ("overlay", False, "fine"),
    ],
)
def test_where_a_file_is_matters(kind, container, severity):
    found = sqlite._place(kind, Path("/data/once.db"), container=container)
    assert found.severity == severity
    assert found.evidence == f"{Path('/data/once.db')} is on {kind}"


@pytest.mark.parametrize(
    "mark", ["KUBERNETES_SERVICE_HOST", "a file"], ids=["kubernetes", "docker"]
)
def test_a_container_is_known_by_its_marks(mark, monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(sqlite, "_MARKS", (tmp_path / "mark",))
    assert not sqlite.in_container()
    if mark == "a file":
        (tmp_path / "mark").touch()
    else:
        monkeypatch.setenv(mark, "10.0.0.1")
    assert sqlite.in_container()


def test_a_file_in_use_is_read_and_not_changed(tmp_path, by_check):
    store = SQLiteStore(tmp_path / "once.db")
    Once(store, observers=()).run("k", lambda: 7)
    before = sorted(path.name for path in tmp_path.iterdir())
    found = by_check(examine(store))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    store.close()
    assert set(found) == {
        *("sqlite.version", "sqlite.writable", "sqlite.place", "sqlite.synchronous"),
        *("sqlite.journal", "sqlite.mode", "sqlite.indexes", "sqlite.held", "sqlite.backlog"),
    }
    assert not [one for one in found.values() if one.severity == "danger"]
    assert found["sqlite.journal"].evidence == "journal_mode=wal"


def test_a_new_file_is_for_its_owner_alone(tmp_path, by_check):
    path = tmp_path / "once.db"
    store = SQLiteStore(path)
    Once(store, observers=()).run("k", lambda: 7)
    assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o600}
    assert by_check(examine(store))["sqlite.mode"].severity == "fine"
    path.chmod(0o644)  # one that somebody has opened stays so
    store.close()
    Once(store, observers=()).run("k2", lambda: 7)
    assert path.stat().st_mode & 0o777 == 0o644
    found = by_check(examine(store))["sqlite.mode"]
    assert (found.severity, found.evidence) == ("warning", "mode=0644")
    store.close()


def test_a_file_may_be_for_a_group(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'once.db'}?mode=0660")
    Once(store, observers=()).run("k", lambda: 7)
    assert store.path.stat().st_mode & 0o777 == 0o660
    store.close()
    for wrong in ("9", "0400x", "0044", "07777"):
        with pytest.raises(ConfigurationError, match="mode"):
            open_store(f"sqlite:///x.db?mode={wrong}")


def test_what_stays_for_long_and_what_is_missing_is_told(tmp_path, by_check, monkeypatch):
    store = SQLiteStore(tmp_path / "once.db")
    once = Once(store, observers=()).options(on_crash="hold")
    with pytest.raises(TimeoutError), once.attempt("held"):
        raise TimeoutError
    once.run("old", lambda: 1)
    with closing(sqlite3.connect(store.file)) as file, file:
        file.execute("UPDATE oncekey_records SET updated = updated - 7200000000")
        file.execute("UPDATE oncekey_records SET due = 1, expires = 1 WHERE key = 'old'")
    found = by_check(examine(store))
    assert found["sqlite.held"].evidence == "held=1, the oldest one for 2 h"
    assert found["sqlite.backlog"].severity == "fine"
    monkeypatch.setattr(finding, "BACKLOG", 0)
    assert by_check(examine(store))["sqlite.backlog"].severity == "warning"
    with closing(sqlite3.connect(store.file)) as file, file:
        file.execute("DROP INDEX oncekey_records_held")
    found = by_check(examine(store))["sqlite.indexes"]
    assert (found.severity, found.evidence) == ("warning", "missing=oncekey_records_held")
    store.close()


def test_a_file_that_is_not_there_is_not_made(tmp_path, by_check):
    found = by_check(examine(SQLiteStore(tmp_path / "none.db")))
    assert "sqlite.journal" not in found
    assert not list(tmp_path.iterdir())


def test_another_mode_and_less_care_are_warnings(tmp_path, by_check):
    path = tmp_path / "once.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t (a)")
    found = by_check(examine(SQLiteStore(path, synchronous="NORMAL")))
    assert (found["sqlite.journal"].severity, found["sqlite.journal"].evidence) == (
        "warning",
        "journal_mode=delete",
    )
    assert (found["sqlite.synchronous"].severity, found["sqlite.synchronous"].evidence) == (
        "warning",
        "synchronous=NORMAL",
    )


def test_a_folder_that_is_not_there_is_dangerous(tmp_path, by_check):
    found = by_check(examine(SQLiteStore(tmp_path / "no" / "once.db")))["sqlite.writable"]
    assert found.severity == "danger"
    assert str(tmp_path / "no") in found.evidence


def test_a_file_that_is_no_database_is_an_error(tmp_path):
    path = tmp_path / "text.db"
    path.write_text("not a database, but long enough to be taken for one" * 99)
    with pytest.raises(StoreError, match="cannot be read"):
        examine(SQLiteStore(path))


def test_an_old_library_is_named():
    assert sqlite._version((3, 34, 1)).severity == "danger"


async def test_coroutines_find_the_same(tmp_path):
    store = SQLiteStore(tmp_path / "once.db")
    assert await examine_async(store.as_async()) == examine(store)


def test_a_store_in_memory_is_for_one_process(by_check):
    found = by_check(examine(MemoryStore()))
    assert found["memory.process"].severity == "warning"


async def test_a_store_of_somebody_else_is_left_alone():
    class Theirs:
        def claim(self, ask):
            raise AssertionError(ask)

    class TheirsToo:
        async def claim(self, ask):
            raise AssertionError(ask)

    [found] = examine(Theirs())
    assert (found.check, found.severity, found.evidence) == ("store.kind", "fine", "store=Theirs")
    [found] = await examine_async(TheirsToo())
    assert found.evidence == "store=TheirsToo"


# Lifetimes


@pytest.mark.parametrize(
    ("ttl", "horizon", "severity"),
    [("24h", "12h", "fine"), ("24h", "24h", "fine"), ("24h", "3d", "danger"), (90, 90.5, "danger")],
)
def test_records_must_outlive_the_last_retry(by_check, ttl, horizon, severity):
    found = by_check(examine(MemoryStore(), ttl=ttl, retry_horizon=horizon))["lifetime.ttl"]
    assert found.severity == severity


def test_lifetimes_are_written_as_people_write_them(by_check):
    found = by_check(examine(MemoryStore(), ttl="36h", retry_horizon="3d"))["lifetime.ttl"]
    assert found.evidence == "ttl=36h, retry horizon=3d"
    assert found.fix == "set ttl to 3d or more"
    assert found.sentence == f"{found.meaning} ({found.evidence}); {found.fix}"


def test_markers_of_events_must_outlive_the_last_retry_too(by_check):
    bus = BusSettings("scan")
    found = by_check(examine(MemoryStore(), retry_horizon="3h", events=bus))
    assert found["lifetime.marker_ttl"].severity == "danger"
    assert found["lifetime.marker_ttl"].evidence == "marker_ttl=2h, retry horizon=3h"
    assert not [check for check in by_check(examine(MemoryStore(), ttl="1h")) if "life" in check]


@pytest.mark.parametrize("wrong", ["soon", 0, -1, ""])
def test_a_horizon_must_be_a_duration(wrong):
    with pytest.raises(ConfigurationError, match="retry_horizon"):
        examine(MemoryStore(), retry_horizon=wrong)


def test_the_worst_comes_first():
    found = examine(MemoryStore(), ttl="1h", retry_horizon="2h")
    assert [one.severity for one in found] == ["danger", "warning"]
