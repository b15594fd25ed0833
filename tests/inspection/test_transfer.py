"""Records move from any store to any other, as they are, and nothing is lost without a word."""

import sqlite3
from contextlib import closing
from contextvars import copy_context
from pathlib import Path

import pytest

from oncekey import ConfigurationError, Once
from oncekey.inspection import transfer
from oncekey.inspection.transfer import export_records, import_records
from oncekey.stores import MemoryStore, SQLiteStore


@pytest.fixture
def filled():
    store = MemoryStore()
    once = Once(store, observers=(), cache=False).options(on_crash="hold", heartbeat=False)
    for number in range(7):
        once.options(scope="a/b", label="l").run(f"done:{number}", lambda: {"paid": [1, None]})
    with pytest.raises(ValueError, match="no"), once.options(on_error="keep").attempt("failed"):
        raise ValueError("no")
    with pytest.raises(TimeoutError), once.attempt("held") as attempt:
        attempt.note(request="req-77")
        raise TimeoutError
    copy_context().run(once.attempt("running").__enter__)
    return store


def records(store):
    return list(Once(store, observers=()).scan())


def test_every_record_is_the_same_in_the_other_store(filled, store, tmp_path):
    path = tmp_path / "records.jsonl"
    assert export_records(filled, path).records == 10
    assert path.stat().st_mode & 0o777 == 0o600
    if type(store).__name__ == "Unknown":
        with pytest.raises(ConfigurationError, match="cannot restore"):
            import_records(store, path)
        return
    planned = import_records(store, path, dry_run=True)
    assert (planned.restored, planned.expired, records(store)) == (0, 10, [])
    told = import_records(store, path)
    assert (told.restored, told.there, told.different, told.complete) == (10, 0, 0, True)
    assert records(store) == records(filled)
    again = import_records(store, path)
    assert (again.restored, again.there) == (0, 10)
    back = tmp_path / "back.jsonl"
    export_records(store, back)
    other = SQLiteStore(tmp_path / "other.db")
    assert import_records(other, back).restored == 10
    assert records(other) == records(filled)
    other.close()


def test_what_the_store_has_is_left_alone(filled, tmp_path):
    path = tmp_path / "records.jsonl"
    export_records(filled, path)
    store = MemoryStore()
    Once(store, observers=()).run("held", lambda: "another")
    told = import_records(store, path)
    assert (told.restored, told.different) == (9, 1)
    assert store.get(None, "held").status == "completed"


@pytest.mark.parametrize("cut", [1, 400, 1500, 3000])
def test_an_export_that_was_cut_off_goes_on(filled, tmp_path, monkeypatch, cut):
    monkeypatch.setattr(transfer, "_PAGE", 2)
    path = tmp_path / "records.jsonl"
    export_records(filled, path)
    path.write_bytes(path.read_bytes()[:cut])
    assert not import_records(MemoryStore(), path).complete
    assert export_records(filled, path).records == 10
    store = MemoryStore()
    told = import_records(store, path)
    assert (told.restored, told.complete) == (10, True)
    assert records(store) == records(filled)


@pytest.mark.parametrize("cut", [None, 1500, 2500])
def test_records_of_a_newer_release_are_not_lost_without_a_word(filled, tmp_path, monkeypatch, cut):
    monkeypatch.setattr(transfer, "_PAGE", 2)
    path, whole = tmp_path / "records.jsonl", tmp_path / "whole.jsonl"
    export_records(filled, whole)
    store = SQLiteStore(tmp_path / "records.db")
    import_records(store, whole)
    with closing(sqlite3.connect(tmp_path / "records.db")) as file, file:
        file.execute("UPDATE oncekey_records SET version = 99 WHERE key = 'done:3'")
    told = export_records(store, path)
    assert (told.records, told.newer) == (9, 1)
    if cut:
        path.write_bytes(path.read_bytes()[:cut])
        assert export_records(store, path) == told
    store.close()
    came = import_records(MemoryStore(), path)
    assert (came.restored, came.newer, came.complete) == (9, 1, True)


def test_an_export_goes_to_a_file(filled, tmp_path):
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match="is no file"):
            export_records(filled, path)


def test_a_file_that_was_changed_or_is_another_is_refused(filled, tmp_path):
    path = tmp_path / "records.jsonl"
    export_records(filled, path)
    with pytest.raises(ConfigurationError, match="is complete"):
        export_records(filled, path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(ConfigurationError, match="was changed"):
        import_records(MemoryStore(), path)
    path.write_text("hello\n")
    with pytest.raises(ConfigurationError, match="line 1 of"):
        import_records(MemoryStore(), path)
    with pytest.raises(ConfigurationError, match="no line of an export"):
        export_records(filled, path)
