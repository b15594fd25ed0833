"""`oncekey dead-letters`: what has failed for good, and how it is processed again."""

import json

import psycopg
import pytest

from oncekey.messages import Inbox, Message
from tests.servers.postgres_fixtures import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, folder):
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'inbox.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def inbox(url):
    inbox = Inbox(url, "billing", max_attempts=2)
    yield inbox
    inbox.close()


def fail(inbox, name):
    for _ in range(2):
        with (
            pytest.raises(ValueError, match="no such order"),
            inbox.leased(Message(id=name, type="order.placed")),
        ):
            raise ValueError(f"no such order as {name}")


def listed(run, url, *options):
    said = run("dead-letters", "--json", "--store", url, *options)
    assert said.exit_code == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def test_dead_letters_are_listed_with_their_history(run, url, inbox):
    inbox.mark_completed(inbox.mark_processing("done"))
    fail(inbox, "m-1")
    fail(inbox.for_consumer("shipping"), "m-2")
    found = listed(run, url)
    assert [(one["consumer"], one["key"], one["attempts"]) for one in found] == [
        ("shipping", "m-2", 2),
        ("billing", "m-1", 2),
    ]
    assert found[1]["error"] == "ValueError: no such order as m-1"
    assert found[1]["message_type"] == "order.placed"
    assert found[1]["first_seen"] < found[1]["died"] < found[1]["expires"]
    assert [one["key"] for one in listed(run, url, "--consumer", "billing")] == ["m-1"]
    assert [one["key"] for one in listed(run, url, "m-2")] == ["m-2"]
    assert len(listed(run, url, "--limit", "1")) == 1
    plain = run("dead-letters", "--store", url, "m-1")
    assert "billing/m-1  order.placed  2 attempts  first seen" in plain.stdout
    assert "ValueError: no such order as m-1" in plain.stdout
    hidden = run("dead-letters", "--store", url, "--redact")
    assert "m-1" not in hidden.stdout


def test_a_freed_message_is_processed_again_with_all_of_its_attempts(run, url, inbox):
    fail(inbox, "m-1")
    fail(inbox, "m-2")
    freed = run("dead-letters", "--store", url, "m-1", "--free")
    assert (freed.exit_code, freed.stdout) == (0, "billing/m-1 is free\n")
    assert [one["key"] for one in listed(run, url)] == ["m-2"]
    with inbox.leased(Message(id="m-1")) as delivery:
        assert (delivery.duplicate, delivery.number) == (False, 1)
    with inbox.leased(Message(id="m-2")) as delivery:
        assert delivery.dead
    assert listed(run, url, "--free")[0]["freed"] is True
    assert listed(run, url) == []


def test_where_there_is_nothing_to_see(run, url, inbox, postgres_url):
    inbox.migrate()
    empty = run("dead-letters", "--store", url)
    assert (empty.exit_code, empty.stderr) == (0, "no dead letters\n")
    missing = run("dead-letters", "--store", url, "m-9")
    assert missing.exit_code == 1
    assert "no message with the key 'm-9' has failed for good" in missing.stderr
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS processed_messages, processed_messages_schema")
    none = run("dead-letters", "--store", postgres_url)
    assert none.exit_code == 1
    assert "the store has no inbox" in none.stderr
