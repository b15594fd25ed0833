"""`oncekey outbox`: what waits, what is dead, and what becomes of it."""

import json
import sqlite3
from contextlib import contextmanager

import psycopg
import pytest

from oncekey.outbox import Message, Outbox, Relay
from oncekey.outbox.targets import MessageRefusedError
from tests.servers.postgres_fixtures import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, folder):
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'shop.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def outbox(url):
    outbox = Outbox(url)
    yield outbox
    outbox.close()


@contextmanager
def transaction(url):
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection = psycopg.connect(url)
        connection.execute("SELECT 1")
    yield connection
    connection.commit()
    connection.close()


@pytest.fixture
def put(url, outbox):
    def put(*names, **options):
        outbox.migrate()
        with transaction(url) as connection:
            for name in names:
                message = Message(id=name, type="order.paid", body={"order": name})
                outbox.put(connection, message, to="orders.paid", **options)

    return put


def send(url, **wrong):
    """Sends everything; what was sent."""
    sent = []

    def target(message):
        if message.id in wrong:
            raise wrong[message.id]
        sent.append((message.id, message.to, message.body))

    relay = Relay(url, target, max_tries=1)
    relay.drain()
    relay.close()
    return sent


def listed(run, url, *options):
    said = run("outbox", "--json", "--store", url, *options)
    assert said.exit_code == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def test_what_waits_and_what_is_dead_is_listed(run, url, put):
    put("m-1", "m-2", "m-3")
    assert send(url, **{"m-1": MessageRefusedError("no such tenant"), "m-2": ValueError("what")})
    put("m-4", key="7")
    figures, one, two = listed(run, url)
    assert (figures["pending"], figures["dead"], figures["sent"]) == (1, 2, 1)
    assert figures["oldest"] > 0
    assert (one["id"], one["to"], one["tries"], one["unknown"]) == ("m-1", "orders.paid", 1, False)
    assert (two["id"], two["error"], two["unknown"]) == ("m-2", "ValueError: what", True)
    assert one["created"] < one["died"]
    _, waits = listed(run, url, "--waiting")
    assert (waits["id"], waits["key"], waits["tries"]) == ("m-4", "7", 0)
    assert [one["id"] for one in listed(run, url, "m-2")] == ["m-2"]
    plain = run("outbox", "--store", url).stdout
    assert "1 waits, the oldest for " in plain
    assert "; 2 dead; 1 sent\n" in plain
    assert "orders.paid/m-1  order.paid  1 try  put " in plain
    assert "MessageRefusedError: no such tenant" in plain
    assert "may have arrived  ValueError: what" in plain
    assert (
        "orders.paid/m-4  order.paid  0 tries" in run("outbox", "--waiting", "--store", url).stdout
    )
    hidden = run("outbox", "--store", url, "--redact").stdout
    assert "m-1" not in hidden
    assert "tenant" not in hidden


def test_dead_messages_are_revived_and_dropped(run, url, put):
    put("m-1", "m-2")
    send(url, **{"m-1": ValueError("no"), "m-2": ValueError("no")})
    revived = run("outbox", "--store", url, "m-1", "--revive")
    assert (revived.exit_code, revived.stdout) == (0, "orders.paid/m-1 is tried again\n")
    assert [one[0] for one in send(url)] == ["m-1"]
    dropped = run("outbox", "--store", url, "--drop")
    assert dropped.stdout.endswith("orders.paid/m-2 is deleted\n")
    assert listed(run, url)[0]["dead"] == 0
    assert send(url) == []


def test_an_edited_message_has_a_new_id_and_a_warning_says_when_both_may_arrive(
    run, url, put, folder
):
    put("m-1", "m-2")
    send(url, **{"m-1": ValueError("no"), "m-2": MessageRefusedError("no")})
    (folder / "body").write_text('{"order": "mended"}')
    edited = run("outbox", "--store", url, "m-1", "--body", "body", "--to", "orders.mended")
    assert "a try of m-1 ended without an answer: the target may have it" in edited.stderr
    new = edited.stdout.strip().removeprefix("orders.paid/m-1 is sent as ")
    assert send(url) == [(new, "orders.mended", b'{"order": "mended"}')]
    assert new != "m-1"
    certain = run("outbox", "--store", url, "m-2", "--to", "elsewhere")
    assert certain.stderr == ""
    assert [one[1:] for one in send(url)] == [("elsewhere", b'{"order":"m-2"}')]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("m-1", "--revive", "--drop"), "exclude each other"),
        (("--to", "elsewhere"), "say which message is to be edited"),
        (("--waiting", "--drop"), "changes nothing"),
        (("m-1", "--body", "nowhere"), "nowhere cannot be read (No such file"),
        (("m-1", "--to", "a b"), "a destination has no blanks"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_changed(run, url, put, options, words):
    put("m-1")
    send(url, **{"m-1": ValueError("no")})
    said = run("outbox", "--store", url, *options)
    assert said.exit_code == 2
    assert words in said.stderr
    assert listed(run, url)[0]["dead"] == 1


def test_where_there_is_nothing_to_see(run, url, put, folder):
    put()
    assert run("outbox", "--store", url).stdout == "0 wait; 0 dead; 0 sent\n"
    missing = run("outbox", "--store", url, "m-9")
    assert missing.exit_code == 1
    assert "no dead message has the id 'm-9'" in missing.stderr
    none = run("outbox", "--store", "sqlite:///nowhere.db")
    assert none.exit_code == 1
    assert "the store has no outbox" in none.stderr
    assert not (folder / "nowhere.db").exists()
