"""A batch in atomic mode: claimed at once, duplicates told apart, completed or undone together."""

import psycopg
import pytest

from oncekey import ConfigurationError, InProgressError, KeyReusedError
from oncekey.messages import AsyncInbox, Message, by_attribute
from tests.messages.together import aside, lapse, until_blocked
from tests.messages.ways_async import WAYS as WAYS_ASYNC


class BrokenError(Exception):
    pass


def orders(*names):
    return [Message(id=name, type="order.placed") for name in names]


def process(way, inbox, *names):
    """Write an order for each message that is new. Return what every delivery says."""
    with way.transaction() as connection, inbox.atomic_many(connection, orders(*names)) as batch:
        for delivery in batch:
            if not delivery.duplicate:
                way.write(connection, delivery.key)
                delivery.complete({"order": delivery.key, "attempt": delivery.number})
    return [(one.key, one.duplicate, one.result["order"]) for one in batch]


@pytest.mark.row("M6")
def test_each_message_of_a_batch_is_processed_once(way, inbox):
    assert process(way, inbox, "b", "a") == [("b", False, "b"), ("a", False, "a")]
    with way.transaction() as connection, inbox.atomic(connection, orders("c")[0]):
        way.write(connection, "c")
    found = process(way, inbox, "a", "d", "b")
    assert found == [("a", True, "a"), ("d", False, "d"), ("b", True, "b")]
    assert way.orders() == ["a", "b", "c", "d"]
    assert [(mark[1], mark[2]) for mark in way.marks()] == [
        (name, "completed") for name in ("a", "b", "c", "d")
    ]
    with way.transaction() as connection, inbox.atomic(connection, orders("d")[0]) as delivery:
        assert delivery.result == {"order": "d", "attempt": 1}


def test_a_message_that_is_twice_in_a_batch_is_its_own_duplicate(way, inbox):
    assert process(way, inbox, "a", "b", "a") == [
        ("a", False, "a"),
        ("b", False, "b"),
        ("a", True, "a"),
    ]
    assert way.orders() == ["a", "b"]


def test_an_error_undoes_the_whole_batch_and_leaves_the_transaction(way, inbox):
    process(way, inbox, "a")
    with way.transaction() as connection:
        with pytest.raises(BrokenError), inbox.atomic_many(connection, orders("a", "b", "c")):
            way.write(connection, "inside")
            raise BrokenError
        way.write(connection, "after")
    assert way.orders() == ["a", "after"]
    assert [mark[1] for mark in way.marks()] == ["a"]
    assert process(way, inbox, "b", "c") == [("b", False, "b"), ("c", False, "c")]


def test_an_empty_batch_is_nothing(way, inbox):
    with way.transaction() as connection, inbox.atomic_many(connection, []) as batch:
        assert batch == []


def test_messages_that_failed_or_lapsed_are_taken_over(way, open_inbox):
    inbox = open_inbox(way.url, max_attempts=2)
    inbox.mark_failed(inbox.mark_processing("failed"), "no")
    inbox.mark_processing("lapsed")
    inbox.mark_failed(inbox.mark_processing("poison"), "no")
    inbox.mark_failed(inbox.mark_processing("poison"), "no")
    lapse(way)
    with (
        way.transaction() as connection,
        inbox.atomic_many(connection, orders("failed", "lapsed", "new", "poison")) as batch,
    ):
        facts = [(one.key, one.number, one.dead) for one in batch]
    assert facts[:3] == [("failed", 2, False), ("lapsed", 2, False), ("new", 1, False)]
    assert facts[3][2]
    assert [mark[2] for mark in way.marks()] == ["completed", "completed", "completed", "failed"]


def test_one_in_progress_elsewhere_refuses_the_batch(way, inbox, open_inbox):
    claim = open_inbox(way.url, lease="1h").mark_processing("b")
    with (
        way.transaction() as connection,
        pytest.raises(InProgressError) as refused,
        inbox.atomic_many(connection, orders("a", "b")),
    ):
        raise AssertionError("nobody may run it")
    assert refused.value.key == "b"
    assert [mark[1] for mark in way.marks()] == ["b"]
    inbox.mark_completed(claim, {"order": "elsewhere"})
    assert process(way, inbox, "a", "b") == [("a", False, "a"), ("b", True, "elsewhere")]


def test_another_message_under_a_used_key_refuses_the_batch(way, open_inbox):
    inbox = open_inbox(way.url, key=by_attribute(), fingerprint=lambda message: message.body)
    first = Message(id="m-1", attributes={"request_id": "r-1"}, body=b"one")
    other = Message(id="m-2", attributes={"request_id": "r-1"}, body=b"two")
    with way.transaction() as connection, inbox.atomic_many(connection, [first]):
        pass
    with (
        way.transaction() as connection,
        pytest.raises(KeyReusedError),
        inbox.atomic_many(connection, [other]),
    ):
        pass


@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy", "django"])
def test_two_batches_with_common_messages_wait_for_each_other(way_of, open_inbox, name):
    """And not in a circle, whatever the order of their messages."""
    way = way_of(name)
    inbox = open_inbox(way.url)
    inbox.migrate()
    with aside() as submit:
        with (
            way.transaction() as connection,
            inbox.atomic_many(connection, orders("a", "b")) as batch,
        ):
            second = submit(process, way, inbox, "b", "c", "a")
            until_blocked(way)
            for delivery in batch:
                delivery.complete({"order": "first"})
        assert second.result() == [("b", True, "first"), ("c", False, "c"), ("a", True, "first")]
    assert way.orders() == ["c"]


def test_a_batch_is_two_statements(way_of, open_inbox, monkeypatch):
    """Besides its savepoint, however many messages it has, if they are new."""
    way = way_of("psycopg")
    inbox = open_inbox(way.url)
    inbox.migrate()
    seen, execute = [], psycopg.Cursor.execute

    def counted(cursor, statement, *values, **options):
        seen.append(statement)
        return execute(cursor, statement, *values, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    with way.transaction() as connection, inbox.atomic_many(connection, orders(*"abcdefgh")):
        pass
    ours = [text.split()[0] for text in seen]
    assert ours == ["SAVEPOINT", "INSERT", "UPDATE", "RELEASE"]


def test_a_batch_whose_transaction_was_committed_inside_is_completed(
    postgres_url, way_of, open_inbox
):
    way = way_of("psycopg")
    inbox = open_inbox(way.url)
    with psycopg.connect(way.url) as connection:
        connection.execute("SELECT 1")
        with (
            pytest.raises(ConfigurationError, match="inside the block"),
            inbox.atomic_many(connection, orders("a", "b")),
        ):
            way.write(connection, "7")
            connection.commit()
    assert [mark[2] for mark in way.marks()] == ["completed", "completed"]


@pytest.mark.parametrize("name", WAYS_ASYNC)
async def test_batches_of_coroutines(name, request):
    kind, database = WAYS_ASYNC[name]
    way = kind(request.getfixturevalue(f"{database}_url"))
    inbox = AsyncInbox(way.url, "billing")
    for expected in (False, True):
        async with (
            way.transaction() as connection,
            inbox.atomic_many(connection, orders("a", "b")) as batch,
        ):
            assert [one.duplicate for one in batch] == [expected, expected]
            for delivery in batch:
                if not delivery.duplicate:
                    await way.write(connection, delivery.key)
                    await delivery.complete(delivery.key)
        assert [one.result for one in batch] == ["a", "b"]
    assert way.orders() == ["a", "b"]
    await inbox.aclose()
