"""Leased mode: claimed first, renewed meanwhile, completed in the business transaction."""

from contextlib import suppress

import pytest

from oncekey import ConfigurationError, InProgressError, LeaseLostError, Once, RememberedError
from oncekey.messages import Message, dead_letter
from oncekey.messages.dead_letters import dead_letters
from tests.leases import LONG, beat_often
from tests.messages.together import aside, lapse, until_blocked
from tests.patience import until

ORDER = Message(id="m-1", type="order.placed")


class BrokenError(Exception):
    pass


@pytest.fixture(params=["psycopg", "sqlalchemy", "django", "sqlite3", "sqlalchemy on sqlite"])
def way(request, way_of):
    return way_of(request.param)


def test_completed_in_the_transaction_of_the_business(way, inbox, open_inbox):
    with inbox.leased(ORDER) as delivery:
        assert (delivery.duplicate, delivery.number) == (False, 1)
        assert way.marks() == [("billing", "m-1", "processing", 1, None)]
        with pytest.raises(InProgressError), open_inbox(way.url).leased(ORDER):
            pass
        with way.transaction() as connection:
            way.write(connection, "7")
            delivery.complete({"order": 7}, connection=connection)
    assert delivery.result == {"order": 7}
    with inbox.leased(ORDER) as delivery:
        assert delivery.duplicate
        assert delivery.result == {"order": 7}
    assert way.orders() == ["7"]
    assert way.marks() == [("billing", "m-1", "completed", 1, None)]


def test_completed_by_itself_or_with_the_end_of_the_block(way, inbox):
    with inbox.leased(ORDER) as delivery:
        delivery.complete("done")
    with inbox.leased(Message(id="m-2")):
        pass
    assert [row[1:3] for row in way.marks()] == [("m-1", "completed"), ("m-2", "completed")]


def test_an_error_frees_the_message_and_is_counted(way, inbox):
    with pytest.raises(BrokenError), inbox.leased(ORDER):
        raise BrokenError("out of \0paper")
    assert way.marks() == [
        ("billing", "m-1", "failed", 1, "BrokenError: out of \N{REPLACEMENT CHARACTER}paper")
    ]
    kept = way.execute("SELECT error_bytes FROM processed_messages")[0][0]
    assert b"out of \0paper" in bytes(kept)
    with inbox.leased(ORDER) as delivery:
        assert delivery.number == 2


def test_a_rolled_back_completion_frees_the_message(way, inbox):
    with (
        pytest.raises(BrokenError),
        inbox.leased(ORDER) as delivery,
        way.transaction() as connection,
    ):
        way.write(connection, "7")
        delivery.complete("first", connection=connection)
        raise BrokenError
    assert way.orders() == []
    assert way.marks()[0][2] == "failed"
    with inbox.leased(ORDER) as delivery:
        assert not delivery.duplicate


def test_a_rolled_back_completion_cannot_be_overlooked(way, inbox):
    with (
        pytest.raises(ConfigurationError, match="do not acknowledge"),
        inbox.leased(ORDER) as delivery,
        suppress(BrokenError),
        way.transaction() as connection,
    ):
        delivery.complete("first", connection=connection)
        raise BrokenError
    with inbox.leased(ORDER) as delivery:
        assert not delivery.duplicate


def test_a_transaction_that_failed_may_be_tried_again(way, inbox):
    with inbox.leased(ORDER) as delivery:
        for number in (1, 2):
            with suppress(BrokenError), way.transaction() as connection:
                way.write(connection, number)
                delivery.complete(number, connection=connection)
                if number == 1:
                    raise BrokenError
        with pytest.raises(LeaseLostError), way.transaction() as connection:
            way.write(connection, 3)
            delivery.complete(3, connection=connection)
    assert way.orders() == ["2"]
    with inbox.leased(ORDER) as delivery:
        assert delivery.result == 2


def test_a_transaction_around_the_block_is_still_open_at_its_end(way, inbox):
    begun = way.transaction()
    with inbox.leased(ORDER) as delivery:
        connection = begun.__enter__()
        way.write(connection, "7")
        delivery.complete("done", connection=connection)
    begun.__exit__(None, None, None)
    assert way.orders() == ["7"]
    assert inbox.is_processed("m-1")


def test_whoever_lost_the_lease_cannot_complete_and_its_write_is_rolled_back(
    way, inbox, open_inbox
):
    other = open_inbox(way.url)
    with pytest.raises(LeaseLostError), inbox.leased(ORDER) as delivery:
        lapse(way)
        with other.leased(ORDER) as winner:
            assert winner.number == 2
            winner.complete("winner")
        with way.transaction() as connection:
            way.write(connection, "loser")
            delivery.complete("loser", connection=connection)
    assert way.orders() == []
    with inbox.leased(ORDER) as delivery:
        assert delivery.result == "winner"


def test_whoever_lost_the_lease_has_the_result_of_the_one_who_was_quicker(way, inbox, open_inbox):
    with inbox.leased(ORDER) as delivery:
        lapse(way)
        with open_inbox(way.url).leased(ORDER) as winner:
            winner.complete("winner")
        delivery.complete("loser")
        assert (delivery.duplicate, delivery.result) == (True, "winner")


def test_a_stale_consumer_cannot_complete_what_another_is_at(way, inbox, open_inbox):
    other = open_inbox(way.url)
    with pytest.raises(LeaseLostError), inbox.leased(ORDER) as delivery:
        lapse(way)
        taken = other.mark_processing("m-1")
        with way.transaction() as connection:
            way.write(connection, "stale")
            delivery.complete("stale", connection=connection)
    other.mark_completed(taken, "fresh")
    assert way.orders() == []
    with inbox.leased(ORDER) as delivery:
        assert delivery.result == "fresh"


def test_a_lease_is_renewed_while_the_work_goes_on(way, open_inbox, monkeypatch):
    beat_often(monkeypatch.setattr)
    inbox, other = open_inbox(way.url, lease=LONG), open_inbox(way.url)
    ends = "SELECT lease_end FROM processed_messages"
    with inbox.leased(ORDER) as delivery:
        first = way.execute(ends)
        until(lambda: way.execute(ends) > first)
        with pytest.raises(InProgressError), other.leased(ORDER):
            pass
        delivery.complete(1)


def test_a_long_transaction_costs_nobody_a_lease(way_of, open_inbox, monkeypatch):
    beat_often(monkeypatch.setattr)
    way = way_of("psycopg")
    inbox = open_inbox(way.url, lease=LONG)
    ends = "SELECT lease_end FROM processed_messages WHERE idempotency_key = 'm-2'"
    with inbox.leased(ORDER) as long, inbox.leased(Message(id="m-2")) as short:
        with way.transaction() as connection:
            long.complete("long", connection=connection)  # its row is locked from here on
            for _ in range(3):
                seen = way.execute(ends)
                until(lambda seen=seen: way.execute(ends) > seen)
        with way.transaction() as connection:
            short.complete("short", connection=connection)
    assert [row[2] for row in way.marks()] == ["completed", "completed"]


def test_a_redelivery_during_a_long_transaction_is_refused_and_not_stuck(way_of, open_inbox):
    way = way_of("psycopg")
    inbox, other = open_inbox(way.url), open_inbox(way.url)
    with inbox.leased(ORDER) as delivery, way.transaction() as connection:
        delivery.complete("first", connection=connection)
        with aside() as start:
            refused = start(_refused, other)
            until_blocked(way)
            assert refused.result()
    with other.leased(ORDER) as delivery:
        assert delivery.result == "first"


def _refused(inbox):
    with pytest.raises(InProgressError), inbox.leased(ORDER):
        pass
    return True


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_a_poison_message_dies_and_is_told_of_once(way_of, open_inbox, name):
    way, letters = way_of(name), []
    inbox = open_inbox(way.url, max_attempts=2, dead_letter=letters.append)
    for number in (1, 2):
        with pytest.raises(BrokenError), inbox.leased(ORDER) as delivery:
            assert delivery.number == number
            raise BrokenError("no")
    with inbox.leased(ORDER) as delivery:
        assert (delivery.duplicate, delivery.dead) == (True, True)
        with pytest.raises(RememberedError, match="BrokenError: no"):
            _ = delivery.result
    (letter,) = letters
    assert (letter.key, letter.attempts, letter.error) == ("m-1", 2, "BrokenError: no")
    assert letter.message is ORDER
    assert letter.first_seen is not None
    assert isinstance(letter.exception, BrokenError)
    assert way.marks() == [("billing", "m-1", "failed", 2, "BrokenError: no")]
    assert not inbox.is_processed("m-1")


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"body": {"name": "half \ud83d"}}, b'{"name": "half \\ud83d"}'),
        ({"body": "half \ud83d"}, b"half \xed\xa0\xbd"),
        ({"body": b"all", "attributes": {"name": "half \ud83d"}}, None),
    ],
    ids=["JSON", "text", "attributes"],
)
def test_a_message_that_cannot_be_written_down_dies_too(way_of, open_inbox, caplog, more, kept):
    way, letters, message = way_of("psycopg"), [], Message(id="m-1", **more)
    inbox = open_inbox(way.url, max_attempts=1, dead_letter=letters.append)
    with pytest.raises(BrokenError), inbox.leased(message):
        raise BrokenError
    with inbox.leased(message) as delivery:
        assert delivery.dead
    assert len(letters) == 1
    (dead,) = dead_letters(way.url)
    assert (dead.letter and dead.letter.body) == kept
    assert ("is kept without its body" in caplog.text) is (kept is None)


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_a_message_that_kills_its_consumers_dies_too(way_of, open_inbox, name):
    way, letters = way_of(name), []
    inbox = open_inbox(way.url, max_attempts=1, dead_letter=letters.append)
    assert inbox.mark_processing("m-1").number == 1
    lapse(way)
    with inbox.leased(ORDER) as delivery:
        assert delivery.dead
    assert [(one.attempts, one.error) for one in letters] == [
        (1, "it ended without an outcome, and its lease ran out")
    ]


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_a_dead_letter_may_take_longer_than_a_claim_may_wait_for_its_code(way_of, open_inbox, name):
    """A claim whose code does not begin is released after a second, but this one is in use."""
    way, waiting = way_of(name), []

    def box(_):
        waiting.append(list(inbox.config.once.core.flights.granted))

    inbox = open_inbox(way.url, max_attempts=1, dead_letter=box)
    assert inbox.mark_processing("m-1").number == 1
    lapse(way)
    with inbox.leased(ORDER) as delivery:
        assert delivery.dead
    assert waiting == [[]]


@pytest.fixture
def without_pauses(monkeypatch):
    monkeypatch.setattr(dead_letter, "PAUSES", (0, 0, 0))


@pytest.mark.usefixtures("without_pauses")
@pytest.mark.parametrize("failures", [1, 9])
@pytest.mark.parametrize("lapsed", [False, True])
def test_who_cannot_be_told_is_told_again_and_then_given_up(
    way_of, open_inbox, caplog, failures, lapsed
):
    """Or its message would be delivered for ever."""
    way, letters = way_of("sqlite3"), []

    def box(letter):
        letters.append(letter)
        if len(letters) <= failures:
            raise OSError("the queue of dead letters is down")

    inbox = open_inbox(way.url, max_attempts=1, dead_letter=box)
    if lapsed:
        inbox.mark_processing("m-1")
        lapse(way)
    else:
        with pytest.raises(BrokenError), inbox.leased(ORDER):
            raise BrokenError
    with inbox.leased(ORDER) as delivery:
        assert delivery.dead
    assert [letter.attempts for letter in letters] == [1] * (2 if failures == 1 else 4)
    assert "could not be told" in caplog.text
    assert ("was given up; billing failed 1 times" in caplog.text) is (failures == 9)


def test_a_message_that_may_run_without_a_key(sqlite_url, open_inbox):
    inbox = open_inbox(sqlite_url, on_missing_key="run")
    for _ in range(2):
        with inbox.leased(Message(body=b"x")) as delivery:
            assert not delivery.duplicate
            delivery.complete(1)


def test_marks_in_a_store_without_tables(open_inbox):
    once = Once("memory://")
    inbox, other = open_inbox(once), open_inbox(once, "shipping")
    with inbox.leased(ORDER) as delivery:
        assert inbox.mark_processing("m-1") is None
        with other.leased(ORDER) as another:
            assert not another.duplicate
        delivery.complete("done")
    with inbox.leased(ORDER) as delivery:
        assert delivery.result == "done"
    assert inbox.is_processed("m-1")
    with pytest.raises(Exception, match="MemoryStore"):
        inbox.purge()


def test_the_inbox_of_a_once_has_its_database_policy_and_observers(sqlite_url, open_inbox):
    seen = []
    once = Once(sqlite_url, observers=[seen.append])
    inbox = open_inbox(once)
    with inbox.leased(ORDER):
        pass
    with inbox.leased(ORDER):
        pass
    assert [(event.name, event.label) for event in seen] == [
        ("new", "order.placed"),
        ("completed", "order.placed"),
        ("duplicate", "order.placed"),
    ]
    once.close()
