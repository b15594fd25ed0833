"""Listing every kind of store: pages, choices, counts, and what stays in the store."""

from contextvars import copy_context
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from oncekey import ConfigurationError, Once, UnreadableError
from oncekey.cli.stats import _print, fields_of_counts
from oncekey.inspection.listing import (
    count_due,
    count_records,
    fill_page,
    find_record,
    list_records,
    measure,
    time_of,
)
from oncekey.inspection.text import basis_of, number_of, status_word
from oncekey.stores import MemoryStore, PostgresStore, SQLiteStore, browse
from oncekey.stores.browse import STATUSES, RecordCounts, RecordQuery
from oncekey.stores.postgres import browse as postgres_browse
from oncekey.stores.redis import browse as redis_browse
from oncekey.stores.sqlite import browse as sqlite_browse

HOUR = 3_600_000_000
NEWEST_FIRST = (MemoryStore, SQLiteStore, PostgresStore)


def filled(store, count=7):
    """Completed charges and one record of every other status; the keys from old to new."""
    once = Once(store, observers=(), cache=False).options(on_crash="hold", heartbeat=False)
    billing = once.options(scope="billing", label="charge")
    keys = []
    for number in range(count):
        billing.run(f"charge:{number}", lambda: "paid")
        keys.append(f"charge:{number}")
    for key, error, ways in (
        ("failed", ValueError, {"on_error": "keep"}),
        ("released", ValueError, {}),
        ("held", TimeoutError, {}),
    ):
        with pytest.raises(error), once.options(**ways).attempt(key) as attempt:
            attempt.note(said="so")
            raise error(key)
        keys.append(key)
    copy_context().run(once.attempt("running").__enter__)  # nobody here is inside it
    return [*keys, "running"]


def keys_of(sight):
    return [record.key for record in sight.records]


def all_keys(store, **asked):
    """Every key, page by page."""
    keys, after = [], None
    while True:
        sight = list_records(store, RecordQuery(after=after, **asked))
        assert len(sight.records) == len(sight.sizes) <= asked.get("limit", 100)
        keys += keys_of(sight)
        after = sight.after
        if after is None:
            return keys


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_have_every_record_once_and_the_newest_first(store, limit):
    keys = filled(store)
    found = all_keys(store, limit=limit)
    assert sorted(found) == sorted(keys)
    assert list_records(store, RecordQuery()).newest_first == isinstance(store, NEWEST_FIRST)
    if isinstance(store, NEWEST_FIRST):
        assert found == keys[::-1]


@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({"status": "held"}, ["held"]),
        ({"status": "failed"}, ["failed"]),
        ({"status": "completed"}, ["charge:0", "charge:1", "charge:2", "charge:3"]),
        ({"any_scope": False}, ["failed", "held", "released", "running"]),
        ({"any_scope": False, "scope": "billing", "prefix": "charge:2"}, ["charge:2"]),
        ({"any_scope": False, "scope": "nobody's"}, []),
        ({"label": "charge", "prefix": "charge:3"}, ["charge:3"]),
        ({"label": "char"}, []),
        ({"prefix": "r"}, ["released", "running"]),
        ({"prefix": "%"}, []),
        ({"newer": HOUR}, None),
        ({"older": HOUR}, []),
    ],
)
def test_choosing(store, asked, keys, limit):
    everything = filled(store, 4)
    assert sorted(all_keys(store, limit=limit, **asked)) == sorted(
        everything if keys is None else keys
    )


def test_results_stay_in_the_store_and_their_sizes_are_told(store):
    filled(store, 1)
    Once(store, observers=()).run("empty", lambda: None)
    Once(store, observers=()).options(max_result=10).run("large", lambda: "x" * 100)
    sight = list_records(store, RecordQuery())
    assert {record.result for record in sight.records} == {None}
    sizes = dict(zip(keys_of(sight), sight.sizes, strict=True))
    assert (sizes["charge:0"], sizes["empty"], sizes["large"]) == (5, 1, None)
    assert find_record(store, "billing", "charge:0").value == "paid"
    assert next(one for one in sight.records if one.key == "held").notes == {"said": "so"}


def test_a_page_of_nothing(store):
    sight = list_records(store, RecordQuery())
    assert (sight.records, sight.sizes, sight.after) == ([], [], None)
    assert sight.now > 1_700_000_000_000_000
    assert find_record(store, None, "nothing") is None


def test_few_are_counted_exactly(store):
    filled(store)
    told = count_records(store)
    assert told == RecordCounts(
        total=11,
        by_status={"running": 1, "completed": 7, "failed": 1, "released": 1, "held": 1},
        lapsed=0,
        exact=True,
        held_exact=True,
        held_since=find_record(store, None, "held").updated,
        looked_at=11,
        now=told.now,
    )
    assert list(told.by_status) == list(STATUSES)
    assert count_records(store, exact=True).total == 11


@pytest.mark.parametrize("sampled", [False, True])
def test_a_running_record_whose_lease_is_over_has_lapsed(store, monkeypatch, sampled):
    if sampled:
        monkeypatch.setattr(sqlite_browse, "COUNTED", 0)
        monkeypatch.setattr(sqlite_browse, "_RUN", 1)
        monkeypatch.setattr(postgres_browse, "_SMALL", 0)
        monkeypatch.setattr(postgres_browse, "_SAMPLED", 1)
    once = Once(store, observers=(), cache=False).options(heartbeat=False)
    copy_context().run(once.attempt("at work").__enter__)
    copy_context().run(once.options(lease=timedelta(milliseconds=100)).attempt("gone").__enter__)
    gone = find_record(store, None, "gone")
    while time_of(store) < gone.lease_end:
        pass
    told = count_records(store)
    assert (told.by_status["running"], told.lapsed) == (2, 1)
    page = list_records(store, RecordQuery(status="running"))
    words = {one.key: status_word(one, page.now) for one in page.records}
    assert words == {"at work": "running", "gone": "lapsed"}
    assert {one.status for one in page.records} == {"running"}


def test_what_needs_a_person_is_counted_among_many(store, monkeypatch):
    """An estimate from a part is no count, and a part may have none of what is rare."""
    keys = filled(store, 30)
    monkeypatch.setattr(sqlite_browse, "COUNTED", 5)
    monkeypatch.setattr(sqlite_browse, "_NEWEST", 1)
    monkeypatch.setattr(sqlite_browse, "choices", lambda numbers, k: numbers[:k][:1])
    monkeypatch.setattr(sqlite_browse, "_RUN", 1)
    monkeypatch.setattr(postgres_browse, "_SMALL", 0)
    monkeypatch.setattr(postgres_browse, "_SAMPLED", 1)
    monkeypatch.setattr(redis_browse, "_SAMPLE", 1)
    monkeypatch.setattr(browse, "_STEP", 2)
    monkeypatch.setattr(browse, "_MOST", 4)
    told = count_records(store)
    held = find_record(store, None, "held")
    if type(store).__name__ == "Unknown":
        assert (told.held_exact, told.exact) == (False, False)
        return
    assert (told.counted("held"), told.by_status["held"]) == (True, 1)
    assert told.counted("running") == told.exact == isinstance(store, MemoryStore)
    assert told.held_since == held.updated
    Once(store, observers=()).resolve("held", retry=True)
    told = count_records(store)
    assert (told.by_status["held"], told.held_since) == (0, None)
    assert sorted(all_keys(store, limit=3)) == sorted(keys)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_held_ones_are_listed_and_forgotten(store, limit):
    once = Once(store, observers=(), cache=False).options(on_crash="hold", heartbeat=False)
    for number in range(7):
        with pytest.raises(TimeoutError), once.options(label=f"l{number % 2}").attempt(f"{number}"):
            raise TimeoutError
    once.run("other", lambda: 1)
    assert sorted(all_keys(store, limit=limit, status="held")) == [*"0123456"]
    assert sorted(all_keys(store, limit=limit, status="held", label="l1")) == [*"135"]
    once.forget("3", force=True)
    once.resolve("5", result=1)
    assert sorted(all_keys(store, limit=limit, status="held")) == [*"01246"]
    assert count_records(store).by_status["held"] == 5


def test_none_are_counted(store):
    assert count_records(store).by_status == dict.fromkeys(STATUSES, 0)


def test_gathering_fills_a_page(store):
    filled(store)
    sight = fill_page(store, RecordQuery(status="completed", limit=5))
    assert len(sight.records) == len(sight.sizes) == 5
    assert sight.after is not None
    rest = fill_page(store, RecordQuery(status="completed", after=sight.after))
    assert len({*keys_of(sight), *keys_of(rest)}) == 7
    assert rest.after is None


@pytest.mark.parametrize("after", ["-/", "a/b/c", "/", "5.%/"])
def test_a_cursor_from_elsewhere_is_refused(store, after):
    filled(store, 1)
    with pytest.raises(ConfigurationError, match="is not a cursor of this store"):
        list_records(store, RecordQuery(after=after))


@pytest.mark.parametrize(
    "after", ["-1", str(2**63), str(2**80), "5.", "5.%", "9.0.", "0.-1.", ".1"]
)
def test_a_number_that_no_store_has_is_refused(store, after):
    if type(store).__name__ == "Unknown":  # where it might be a key
        return
    filled(store, 1)
    with pytest.raises(ConfigurationError, match="is not a cursor of this store"):
        list_records(store, RecordQuery(after=after))


@pytest.mark.parametrize(
    "asked", [{"limit": 0}, {"limit": True}, {"older": -1}, {"newer": 1.5}, {"status": "lost"}]
)
def test_what_means_nothing_is_refused_at_once(asked):
    with pytest.raises(ConfigurationError):
        RecordQuery(**asked)


def test_the_store_may_know_how_many_records_a_purge_removes(store):
    filled(store)
    knows = isinstance(store, (SQLiteStore, PostgresStore))
    assert count_due(store, 0) == (0 if knows else None)


def test_a_store_tells_how_much_it_has(store):
    filled(store, 20)
    told = count_records(store)
    found = measure(store, told.total)
    assert 20 * 5 <= found.bytes < 2**20
    if isinstance(store, (SQLiteStore, PostgresStore)) or type(store).__name__ == "RedisStore":
        assert found.new == told.total
    else:
        assert (found.new, found.exact) == (None, False)


def test_an_empty_store_has_a_size_too(store):
    assert measure(store, 0).new in (0, None)


def test_an_unknown_store_is_counted_page_by_page(unknown_store, monkeypatch):
    monkeypatch.setattr(browse, "_STEP", 2)
    monkeypatch.setattr(browse, "_MOST", 4)
    filled(unknown_store)
    told = count_records(unknown_store)
    assert (told.total, told.looked_at, told.exact) == (4, 4, False)
    assert (number_of(told), number_of(told, "held")) == ("at least 4", "at least 1")
    assert (number_of(told, "completed"), told.held_since) == ("none seen", None)
    assert basis_of(told) == "counted among the first 4 records; there are more"
    fields = fields_of_counts(told)
    assert fields["at_least"]["total"] == 4
    assert not {"total", "estimated"} & fields.keys()
    screen = Console(file=StringIO())
    _print(told, screen)
    assert "%" not in screen.file.getvalue(), "shares of what was counted are not those of all"
    whole = count_records(unknown_store, exact=True)
    assert (whole.total, number_of(whole)) == (11, "11")


def test_what_an_unknown_store_cannot_read_is_said(unknown_store):
    def unreadable(*_):
        raise UnreadableError("a newer release wrote it")

    unknown_store.get = unreadable
    with pytest.raises(UnreadableError, match="newer release"):
        find_record(unknown_store, None, "key")
