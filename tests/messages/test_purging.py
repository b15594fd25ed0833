"""A purge of the table by somebody who only knows where it is."""

import pytest

from oncekey import ConfigurationError
from oncekey.messages import Message
from oncekey.messages.purge import due_messages, purge_messages

OLD = "UPDATE processed_messages SET expires_at = '2026-01-01 00:00:00' WHERE message_id <> 'm-0'"


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_what_expired_is_gone_in_batches(way_of, open_inbox, name, monkeypatch):
    monkeypatch.setattr("oncekey.messages.purge.PURGE_BATCH", 4)
    way = way_of(name)
    inbox = open_inbox(way.url, "billing")
    for number in range(11):
        with inbox.leased(Message(id=f"m-{number}")):
            pass
    way.execute(OLD)
    told = []
    assert due_messages(way.url) == 10
    assert purge_messages(way.url, progress=told.append) == 10
    assert told == [4, 8, 10]
    assert (due_messages(way.url), purge_messages(way.url)) == (0, 0)
    assert [row[1] for row in way.marks()] == ["m-0"]


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_looking_makes_no_table(way_of, name):
    way = way_of(name)
    assert (due_messages(way.url), purge_messages(way.url)) == (None, 0)
    with pytest.raises(Exception, match="processed_messages"):
        way.execute("SELECT * FROM processed_messages")


def test_looking_makes_no_file(tmp_path):
    url = f"sqlite:///{tmp_path / 'none.db'}"
    assert (due_messages(url), purge_messages(url)) == (None, 0)
    assert not (tmp_path / "none.db").exists()


def test_a_store_without_tables_has_no_inbox():
    assert (due_messages("memory://"), purge_messages("memory://")) == (None, 0)
    with pytest.raises(ConfigurationError, match="grace"):
        purge_messages("memory://", grace="soon")
