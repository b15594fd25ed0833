"""What people see of the records in a MariaDB: pages, counts, and what is held."""

import pytest

from oncekey import ConfigurationError, Once
from oncekey.exporter import exposition
from oncekey.inspection.listing import (
    count_records,
    fill_page,
    find_record,
    list_records,
    where,
)
from oncekey.stores import MySQLStore
from oncekey.stores.browse import RecordQuery
from oncekey.stores.mysql import browse
from tests.inspection.test_listing import all_keys, filled, keys_of


@pytest.fixture
def store(url):
    store = MySQLStore(url)
    yield store
    store.close()


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("window", [2, 2000])
def test_pages_have_every_record_once_and_the_newest_first(store, limit, window, monkeypatch):
    monkeypatch.setattr(browse, "WINDOW", window)
    keys = filled(store)
    assert all_keys(store, limit=limit) == keys[::-1]
    assert list_records(store, RecordQuery()).newest_first


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"status": "completed"}, 7),
        ({"status": "held"}, 1),
        ({"scope": "billing", "any_scope": False}, 7),
        ({"scope": None, "any_scope": False}, 4),
        ({"label": "charge"}, 7),
        ({"prefix": "charge:"}, 7),
        ({"prefix": "re"}, 1),
        ({"newer": 3_600_000_000}, 11),
        ({"older": 3_600_000_000}, 0),
    ],
)
def test_records_are_chosen(store, asked, found, monkeypatch):
    monkeypatch.setattr(browse, "WINDOW", 3)
    filled(store)
    assert len(all_keys(store, limit=2, **asked)) == found


def test_what_is_held_is_counted_however_many_there_are(store, monkeypatch):
    monkeypatch.setattr(browse, "MOST", 4)
    filled(store, 30)
    once = Once(store, observers=(), cache=False).options(on_crash="hold", scope="the last")
    with pytest.raises(TimeoutError), once.attempt("held too"):
        raise TimeoutError
    told = count_records(store)
    assert (told.exact, told.at_least) == (False, True)
    assert (told.counted("held"), told.by_status["held"]) == (True, 2)
    assert told.held_since == find_record(store, None, "held").updated
    assert "\noncekey_held_records 2\n" in exposition(store)
    assert count_records(store, exact=True).total == 35
    once.resolve("held too", retry=True)
    once.resolve("held", scope=None, retry=True)
    assert "\noncekey_held_records 0\n" in exposition(store)


def test_nothing_is_passed_over_while_others_go(store, monkeypatch):
    """Rows above the end of a page are forgotten while it is read."""
    monkeypatch.setattr(browse, "WINDOW", 4)
    keys = filled(store, 12)
    once = Once(store, observers=(), cache=False)
    run = browse._run
    gone = []

    def forgetting(asked, statement):
        rows = run(asked, statement)
        left = [key for key in keys if key.startswith("charge:1") and key not in gone]
        if "LENGTH(result)" in statement and left:
            gone.append(left[-1])
            once.forget(left[-1], scope="billing")
        return rows

    monkeypatch.setattr(browse, "_run", forgetting)
    stays = {key for key in keys if not key.startswith("charge:1")}
    assert stays <= set(all_keys(store, limit=100))
    assert gone


def test_pages_tell_sizes_and_the_time_of_the_server(store):
    filled(store, 1)
    page = list_records(store, RecordQuery(label="charge"))
    assert (page.records[0].result, page.sizes) == (None, [5])
    assert page.now >= page.records[0].updated
    assert keys_of(fill_page(store, RecordQuery(status="held"))) == ["held"]
    assert where(store) == store.target.where


@pytest.mark.parametrize("after", ["7", "x.key", "-1.key", "7.", "nonsense"])
def test_a_cursor_from_elsewhere_is_refused(store, after):
    with pytest.raises(ConfigurationError, match="is not a cursor of this store"):
        list_records(store, RecordQuery(after=after))
