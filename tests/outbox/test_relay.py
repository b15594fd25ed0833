"""What a relay sends, in which order, and what becomes of what it could not send."""

import asyncio
import itertools
import threading
from types import SimpleNamespace

import psycopg
import pytest

from oncekey import ConfigurationError
from oncekey.outbox import AsyncOutbox, AsyncRelay, Message, Relay, relay_async
from oncekey.outbox.targets import MessageRefusedError, base
from tests.patience import PATIENCE, until, until_async

DATABASES = ("psycopg", "sqlite3")
FOREVER = "1h"


@pytest.fixture(params=DATABASES)
def way(request, way_of):
    """A way to each database."""
    return way_of(request.param)


@pytest.fixture
def put(way, outbox):
    """Puts messages in a transaction of their own."""

    def put(*names, to="orders", key=None, after=None):
        with way.transaction() as connection:
            for name in names:
                outbox.put(
                    connection,
                    Message(id=name, type="paid", body=name, attributes={"n": 1}),
                    to=to,
                    key=key,
                    after=after,
                )

    outbox.migrate()
    return put


@pytest.fixture
async def open_relay(way):
    """Makes relays and closes them."""
    opened = []

    def relay(to, **options):
        opened.append(AsyncRelay(way.url, to, **options))
        return opened[-1]

    yield relay
    for one in opened:
        await one.aclose()


class Inbox:
    """A target that remembers what it was sent, and does what it is told about an id."""

    def __init__(self, **wrong):
        self.messages = []
        self.wrong = wrong

    async def __call__(self, message):
        self.messages.append(message)
        if message.id in self.wrong:
            raise self.wrong[message.id]

    @property
    def got(self):
        return [one.id for one in self.messages]

    def count(self, name):
        return self.got.count(name)


@pytest.fixture
def long_rests(monkeypatch):
    """A target that is out of reach is left alone for as long as a test takes."""
    monkeypatch.setattr(relay_async, "_FIRST_PAUSE", 3600.0)
    monkeypatch.setattr(relay_async, "_LONGEST_REST", 3600.0)


def states(way):
    return dict(way.execute("SELECT message_id, status FROM outbox_messages"))


def tries(way):
    return dict(way.execute("SELECT message_id, tries FROM outbox_messages"))


def make_due(way):
    """As if all pauses and leases were over."""
    way.execute("UPDATE outbox_messages SET due_at = '2020-01-01 00:00:00'")


async def test_what_was_committed_is_sent_once(way, put, outbox, open_relay):
    put("a", "b")
    with pytest.raises(ZeroDivisionError), way.transaction() as connection:
        outbox.put(connection, Message(id="gone"), to="orders")
        raise ZeroDivisionError
    got = []
    relay = open_relay(got.append)
    assert await relay.drain() == 2
    assert await relay.drain() == 0
    assert {one.id for one in got} == {"a", "b"}
    assert {(one.to, one.key, one.type, one.attributes["n"]) for one in got} == {
        ("orders", None, "paid", 1)
    }
    assert {one.body for one in got} == {b"a", b"b"}
    assert states(way) == {"a": "sent", "b": "sent"}


async def test_a_key_has_one_unconfirmed_message_at_a_time(put, open_relay):
    numbers = [f"{number:02}" for number in range(12)]
    for number in numbers:
        for key in ("one", "two"):
            put(f"{key} {number}", key=key)
    under_way, got = set(), []

    async def take(message):
        assert message.key not in under_way
        under_way.add(message.key)
        got.append(message.id)
        await asyncio.sleep(0)  # others may come in here
        under_way.remove(message.key)

    relays = [open_relay(take, batch=5) for _ in range(3)]
    while len(got) < 24:
        await asyncio.gather(*(relay.drain() for relay in relays))
    for key in ("one", "two"):
        assert [name for name in got if name.startswith(key)] == [f"{key} {n}" for n in numbers]


async def test_what_another_relay_has_is_left_alone(way, put, open_relay):
    put("free")
    put("first", "second", key="7")
    may_end, begun = asyncio.Event(), []

    async def take(message):
        begun.append(message.id)
        await may_end.wait()

    one, two = open_relay(take), open_relay(take)
    first = asyncio.create_task(one.drain())
    await until_async(lambda: len(begun) == 2)
    assert await two.drain() == 0
    may_end.set()
    assert await first == 3
    assert sorted(begun) == ["first", "free", "second"]


async def test_a_mark_that_comes_too_late_is_refused(way, put, open_relay):
    put("a", key="7")
    events, may_end, begun = [], asyncio.Event(), []

    async def slow(message):
        begun.append(message.id)
        await may_end.wait()

    late = asyncio.create_task(open_relay(slow, observers=[events.append]).drain())
    await until_async(lambda: begun)
    make_due(way)
    inbox = Inbox(a=ValueError("no"))
    assert await open_relay(inbox).drain() == 0
    assert tries(way) == {"a": 1}
    may_end.set()
    assert await late == 0
    assert [event.name for event in events] == ["late"]
    assert states(way) == {"a": "pending"}  # what the other one has found out stands


async def test_what_a_dead_relay_had_is_sent_when_its_lease_is_over(way, put, open_relay):
    put("a", key="7")

    async def die(_):
        begun.set()
        await asyncio.sleep(3600)

    begun = asyncio.Event()
    dead = asyncio.create_task(open_relay(die).drain())
    await begun.wait()
    dead.cancel()
    inbox = Inbox()
    relay = open_relay(inbox)
    assert await relay.drain() == 0
    make_due(way)
    assert await relay.drain() == 1
    assert inbox.got == ["a"]
    assert tries(way) == {"a": 0}  # a relay that is killed makes no dead letters


async def test_a_message_that_fails_keeps_back_its_key_alone(way, put, open_relay):
    put("first", "second", key="7")
    put("other", key="8")
    put("free")
    events, inbox = [], Inbox(first=ValueError("no"))
    relay = open_relay(inbox, max_tries=3, observers=[events.append])
    for number in (1, 2):
        await relay.drain()
        assert await relay.drain() == 0  # not before its pause is over
        assert tries(way)["first"] == number
        make_due(way)
    await relay.drain()
    make_due(way)
    await relay.drain()
    assert inbox.count("first") == 3
    assert states(way) == {"first": "dead", "second": "pending", "other": "sent", "free": "sent"}
    assert [event.name for event in events].count("failed") == 3
    assert [event.name for event in events].count("dead") == 1
    assert (await relay.figures()).dead == 1


async def test_a_dead_message_is_revived_or_dropped(way, put, outbox, open_relay):
    put("first", "second", key="7")
    put("third", "fourth", key="8")
    inbox = Inbox(first=MessageRefusedError("no"), third=ValueError("no"))
    relay = open_relay(inbox, max_tries=1)
    await relay.drain()
    one, two = outbox.dead_letters()
    assert (one.message.id, one.error, one.unknown) == ("first", "MessageRefusedError: no", False)
    assert (two.message.id, two.error, two.unknown) == ("third", "ValueError: no", True)
    assert outbox.dead_letters(limit=1) == [one]
    inbox.wrong.clear()
    assert outbox.revive(one)
    assert outbox.drop(two)
    assert not outbox.revive(two)
    assert not outbox.drop(one)
    assert await relay.drain() == 3
    assert inbox.got[-3:].count("third") == 0
    assert states(way) == dict.fromkeys(("first", "second", "fourth"), "sent")


async def test_a_decision_about_another_death_is_refused(way, put, outbox, open_relay):
    put("first")
    inbox = Inbox(first=ValueError("no"))
    relay = open_relay(inbox, max_tries=1)
    await relay.drain()
    (seen,) = outbox.dead_letters()
    assert seen.died >= seen.created
    assert outbox.revive(seen)
    inbox.wrong["first"] = MessageRefusedError("never")
    await relay.drain()
    (now,) = outbox.dead_letters("first")
    assert now.error == "MessageRefusedError: never"
    assert outbox.dead_letters("second") == []
    for decided in (outbox.revive(seen), outbox.drop(seen), outbox.edit(seen, Message())):
        assert not decided
    assert outbox.dead_letters() == [now]


async def test_an_edited_letter_is_sent_in_its_place_with_an_id_of_its_own(
    way, put, outbox, open_relay, caplog
):
    put("first", "second", key="7")
    put("third", key="8")
    inbox = Inbox(first=ValueError("no"), third=MessageRefusedError("no"))
    relay = open_relay(inbox, max_tries=1)
    await relay.drain()
    one, three = outbox.dead_letters()
    with pytest.raises(ConfigurationError, match="destination"):
        outbox.edit(one, Message(body="mended"), to="no such *")
    assert outbox.dead_letters() == [one, three]
    new = outbox.edit(one, Message(id="first", type="mended", body="mended"), to="elsewhere")
    assert "consumers may get both" in caplog.text
    caplog.clear()
    assert outbox.edit(three, Message(body="mended too"))
    assert not caplog.text  # it was refused, so that the target has certainly not taken it
    assert new not in ("", "first")
    assert await relay.drain() == 3
    sent = inbox.messages[-3:]
    assert [one.to for one in sent if one.id == new] == ["elsewhere"]
    assert [one.body for one in sent if one.key == "7"] == [b"mended", b"second"]
    assert outbox.dead_letters() == []


async def test_what_waits_is_listed_with_its_last_error(way, put, outbox, open_relay):
    put("first", "second", key="7")
    put("later", after=FOREVER)
    await open_relay(Inbox(first=ValueError("no"))).drain()
    first, second, later = outbox.waiting()
    assert (first.id, first.to, first.key, first.tries) == ("first", "orders", "7", 1)
    assert (first.error, first.unknown) == ("ValueError: no", True)
    assert (second.id, second.tries, second.error) == ("second", 0, "")
    assert (later.id, later.key) == ("later", None)
    assert outbox.waiting(limit=1) == [first]
    assert outbox.figures().pending == 3


async def test_order_may_be_given_up_for_the_dead(way, put, open_relay):
    put("first", "second", key="7")
    await open_relay(Inbox(first=ValueError("no")), max_tries=1, on_dead="skip").drain()
    assert states(way) == {"first": "dead", "second": "sent"}


@pytest.mark.usefixtures("long_rests")
async def test_a_target_out_of_reach_does_not_count(way, put, open_relay):
    put("a", "b", to="orders")
    put("c", to="mails")
    events, inbox = [], Inbox(a=ConnectionError("gone"), b=TimeoutError())
    relay = open_relay({"orders": inbox, "*": inbox}, max_tries=1, observers=[events.append])
    assert await relay.drain() == 1
    assert tries(way) == {"a": 0, "b": 0, "c": 0}
    assert {event.name for event in events} == {"unreachable", "sent"}
    inbox.wrong.clear()
    make_due(way)
    assert await relay.drain() == 0  # the target is left alone for a while
    assert await open_relay(inbox).drain() == 2


@pytest.mark.usefixtures("long_rests")
async def test_a_target_out_of_reach_keeps_back_what_is_its_own(way, put, open_relay):
    put("a", to="mail")
    put("b", to="orders.lost")
    orders, lost, rest = Inbox(), Inbox(b=ConnectionError("gone")), Inbox(a=ConnectionError("gone"))
    relay = open_relay({"orders.lost": lost, "orders.*": orders, "*": rest})
    assert await relay.drain() == 0
    put("c", to="mail")
    put("d", to="orders.lost")
    put("e", to="orders.paid")
    assert await relay.drain() == 1
    assert (orders.got, lost.got, rest.got) == (["e"], ["b"], ["a"])


async def test_one_without_an_answer_does_not_take_the_others_with_it(
    way, put, open_relay, monkeypatch
):
    put("a", "stuck", "b")
    asked, clock = itertools.count(1), base.monotonic
    # Who waits for the answers asks the second time, and finds that none of the time is left.
    monkeypatch.setattr(base, "monotonic", lambda: clock() + 10 * (next(asked) == 2))

    async def take(message):
        if message.id == "stuck":
            await asyncio.sleep(3600)

    assert await open_relay(take, lease="20s", timeout="10s").drain() == 2
    assert states(way) == {"a": "sent", "b": "sent", "stuck": "pending"}
    assert tries(way)["stuck"] == 0


async def test_nothing_is_begun_with_too_little_of_the_lease(way, put, open_relay, monkeypatch):
    put("a")
    inbox, passed, clock = Inbox(), [0], relay_async.monotonic
    relay = open_relay(inbox, lease="20s", timeout="10s")
    lease, leased = relay.table.lease, []

    def slowly(*given, **options):
        leased.append(lease(*given, **options))
        if len(leased) == 1:
            passed.append(11)  # seconds, of a stopped process
        return leased[-1]

    monkeypatch.setattr(relay_async, "monotonic", lambda: clock() + sum(passed))
    monkeypatch.setattr(relay.table, "lease", slowly)
    assert await relay.drain() == 1
    assert [len(messages) for messages in leased] == [1, 1, 0]  # given back at once
    assert inbox.got == ["a"]


async def test_relays_take_what_is_theirs(way, put, open_relay):
    put("paid", to="orders.paid")
    put("under", to="orders_paid")
    put("ordersX", to="ordersXpaid")
    put("mail", to="mail")
    orders, under, rest = Inbox(), Inbox(), Inbox()
    assert await open_relay({"orders.*": orders, "orders_*": under}).drain() == 2
    assert (orders.got, under.got) == (["paid"], ["under"])
    assert await open_relay({"mail": orders, "*": rest}).drain() == 2
    assert (orders.got, rest.got) == (["paid", "mail"], ["ordersX"])


async def test_more_keys_than_a_batch(way, put, open_relay):
    for number in range(25):
        put(f"a{number}", f"b{number}", key=f"key {number}")
    inbox = Inbox()
    relay = open_relay(inbox, batch=4)
    while "pending" in states(way).values():
        await relay.drain()
    assert len(inbox.got) == len(set(inbox.got)) == 50
    assert all(inbox.got.index(f"a{n}") < inbox.got.index(f"b{n}") for n in range(25))


async def test_a_delayed_message_waits(way, put, open_relay):
    put("later", after=FOREVER)
    put("now", after=0)
    inbox = Inbox()
    await open_relay(inbox).drain()
    make_due(way)
    await open_relay(inbox).drain()
    assert inbox.got == ["now", "later"]


async def test_a_stopped_relay_finishes_what_is_under_way(way, put, open_relay, monkeypatch):
    put("a", key="7")
    put("b", key="7")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def take(_):
        begun.set()
        await may_end.wait()

    relay, leased = open_relay(take), []
    lease = relay.table.lease

    def lease_and_tell(*given, **options):
        found = lease(*given, **options)
        leased.append(len(found))
        return found

    monkeypatch.setattr(relay.table, "lease", lease_and_tell)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        await until_async(lambda: leased == [1, 0])  # else one more would be under way
        relay.stop()
        may_end.set()
        await running
    assert states(way) == {"a": "sent", "b": "pending"}


async def test_a_running_relay_sends_what_comes(way, put, open_relay):
    inbox = Inbox()
    relay = open_relay(inbox, poll="10ms")
    running = asyncio.create_task(relay.run())
    for name in ("a", "b"):
        await asyncio.to_thread(put, name)
        await until_async(lambda name=name: states(way)[name] == "sent")
    assert (await relay.figures()).pending == 0
    relay.stop()
    await running
    assert inbox.got == ["a", "b"]


def test_in_blocking_code_it_is_the_same(way, put):
    put("a")
    inbox = Inbox()
    relay = Relay(way.url, inbox, poll="10ms")
    assert relay.figures().pending == 1
    assert relay.figures().oldest >= 0
    assert relay.drain() == 1
    put("b")
    stopping = threading.Thread(target=lambda: until(lambda: inbox.count("b")) and relay.stop())
    stopping.start()
    relay.run()
    stopping.join()
    relay.close()
    assert inbox.got == ["a", "b"]


async def test_what_was_sent_long_ago_is_purged(way, put, open_relay):
    put("a", "b")
    relay = open_relay(Inbox(b=ValueError("no")))
    await relay.drain()
    assert relay.table.purge(3600, 10) == 0
    assert relay.table.purge(0, 10) == 1
    assert states(way) == {"b": "pending"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "ftp://localhost"}, "not to ftp://"),
        ({"to": {}}, "needs a target"),
        ({"to": 7}, "a target is a URL"),
        ({"to": Inbox}, "a target is a URL"),
        ({"to": SimpleNamespace(publish=print, aclose=print)}, "publish of SimpleNamespace must"),
        ({"to": {"*.paid": "nats://localhost"}}, "a destination is a name"),
        ({"batch": 0}, "batch must be"),
        ({"max_tries": True}, "max_tries must be"),
        ({"lease": "10s"}, "at least twice the timeout"),
        ({"on_dead": "drop"}, "on_dead must be"),
        ({"observers": [7]}, "an observer must be"),
        ({"poll": 0}, "poll"),
    ],
)
def test_what_makes_no_relay(options, words):
    with pytest.raises(ConfigurationError, match=words):
        AsyncRelay("sqlite:///shop.db", **{"to": print, **options})


async def test_a_plain_function_may_return_a_coroutine(way, put, open_relay):
    put("a", "b")
    inbox = Inbox(b=ValueError("no"))

    def send(message):
        return inbox(message)

    assert await open_relay(send).drain() == 1
    assert sorted(inbox.got) == ["a", "b"]
    assert states(way) == {"a": "sent", "b": "pending"}


async def test_no_transaction_is_open_while_a_target_is_asked(postgres_url, way_of, open_outbox):
    way, outbox = way_of("psycopg"), open_outbox(postgres_url)
    with way.transaction() as connection:
        outbox.put(connection, Message(id="a"), to="orders", key="7")
    open_ones = []

    def take(_):
        open_ones.append(
            way.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
            )
        )

    relay = AsyncRelay(postgres_url, take)
    assert await relay.drain() == 1
    await relay.aclose()
    assert open_ones == [[(0,)]]


async def test_an_idle_relay_is_told_of_a_message(postgres_url, way_of, open_outbox):
    way, outbox, inbox = way_of("psycopg"), open_outbox(postgres_url), Inbox()
    outbox.migrate()
    relay = AsyncRelay(postgres_url, inbox, poll="1h")

    def asked():
        return way.execute("SELECT listening_until > now() FROM outbox_messages_schema") == [
            (True,)
        ]

    running = asyncio.create_task(relay.run())
    try:
        for name in ("a", "b"):
            await until_async(asked)
            with way.transaction() as connection:
                outbox.put(connection, Message(id=name), to="orders", key=name)
            await until_async(lambda name=name: name in inbox.got)
    finally:
        relay.stop()
        await running
        await relay.aclose()


@pytest.mark.parametrize(
    ("name", "key"), [("psycopg", None), ("psycopg", "7"), ("django", None)], ids=str
)
def test_without_an_idle_relay_nobody_is_told(postgres_url, way_of, open_outbox, name, key):
    way, outbox = way_of(name), open_outbox(postgres_url)
    outbox.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN oncekey_outbox")
        with way.transaction() as connection:
            outbox.put(connection, Message(), to="orders", key=key)
        listener.execute("SELECT 1")
        assert [*listener.notifies(timeout=0)] == []
        way.execute("UPDATE outbox_messages_schema SET listening_until = 'infinity'")
        with way.transaction() as connection:
            outbox.put(connection, Message(), to="orders", key=key)
        assert len([*listener.notifies(timeout=PATIENCE, stop_after=1)]) == 1


async def test_fifty_writers_some_of_them_slow(postgres_url):
    """None is skipped because its transaction was late, and none is sent before its commit."""
    outbox, got, may_commit = AsyncOutbox(postgres_url), [], set()

    async def take(message):
        assert message.id in may_commit
        got.append(message.id)

    relay = AsyncRelay(postgres_url, take, poll="10ms", batch=7)
    slow = asyncio.Event()

    async def write(number):
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            for turn in range(4):
                async with connection.transaction():
                    key = f"key {number % 5}" if turn % 2 else None
                    name = f"{number}.{turn}"
                    await outbox.put(connection, Message(id=name), to="orders", key=key)
                    if number % 10 == 0 and turn == 0:  # it has an early number, and commits last
                        await slow.wait()
                    may_commit.add(name)

    try:
        await outbox.migrate()
        running = asyncio.create_task(relay.run())
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE):
            for number in range(50):
                tasks.create_task(write(number))
            await until_async(lambda: len(got) == 45 * 4)  # the others are not kept back
            slow.set()
            await until_async(lambda: len(got) == 200)
        relay.stop()
        await running
    finally:
        await relay.aclose()
        await outbox.aclose()
    assert len(set(got)) == 200


async def test_a_lease_waits_for_no_disk_and_a_mark_does(way_of, open_outbox):
    """On PostgreSQL. Without a lease a message is sent again; without a mark it was for nothing."""
    way = way_of("psycopg")
    outbox = open_outbox(way.url)
    outbox.migrate()
    for statement in (
        "CREATE TABLE waited (what text, setting text)",
        """
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO waited VALUES (NEW.status, current_setting('synchronous_commit'));
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER note AFTER UPDATE ON outbox_messages FOR EACH ROW EXECUTE FUNCTION note()",
    ):
        way.execute(statement)
    with way.transaction() as connection:
        outbox.put(connection, Message(id="a"), to="orders")
    relay = AsyncRelay(way.url, lambda message: None)
    assert await relay.drain() == 1
    await relay.aclose()
    assert way.execute("SELECT * FROM waited") == [("pending", "off"), ("sent", "on")]
