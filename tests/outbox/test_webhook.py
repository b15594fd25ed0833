"""Webhooks: how they are signed, which answers confirm them, and where they are never sent."""

import ssl
import time
from base64 import b64encode
from time import monotonic

import pytest
import trustme

from oncekey import ConfigurationError
from oncekey.http.signatures import SignatureError, StandardSignature
from oncekey.outbox import AsyncRelay, Message, OutboxMessage
from oncekey.outbox.targets import (
    Endpoint,
    MessageRefusedError,
    NotConfirmedError,
    UndeliverableError,
    Webhook,
)
from oncekey.outbox.targets.networks import Networks
from tests.outbox.receivers import Names, receiving

SECRET = f"whsec_{b64encode(b'a' * 24).decode()}"
OLD = f"whsec_{b64encode(b'b' * 24).decode()}"
HERE = ["127.0.0.0/8"]


def message(name="m-1", body=b'{"order":7}', to="hooks", **attributes):
    return OutboxMessage(id=name, to=to, type="paid", attributes=attributes, body=body)


@pytest.fixture
async def receiver():
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def webhook():
    """Makes targets and closes them."""
    opened = []

    def webhook(*args, **options):
        opened.append(Webhook(*args, **options))
        return opened[-1]

    yield webhook
    for one in opened:
        await one.aclose()


@pytest.fixture
def names(monkeypatch):
    return Names(monkeypatch)


async def answer(target, one=None, patience=30.0):
    """What became of one message."""
    (found,) = await target.publish([one or message()], monotonic() + patience)
    return found


# How it is signed


async def test_it_is_signed_as_a_receiver_checks_it(webhook, receiver):
    target = webhook(f"http://127.0.0.1:{receiver.port}/in?a=b", SECRET, networks=HERE)
    assert await answer(target) is None
    (post,) = receiver.posts
    assert (post.path, post.body) == ("/in?a=b", b'{"order":7}')
    assert post.headers["webhook-id"] == "m-1"
    assert post.headers["content-type"] == "application/json"
    assert post.headers["host"] == f"127.0.0.1:{receiver.port}"
    StandardSignature(SECRET).verify(post.headers, post.body, "", time.time())
    with pytest.raises(SignatureError):
        StandardSignature(SECRET).verify(post.headers, b'{"order":8}', "", time.time())


async def test_while_a_secret_is_replaced_both_sign(webhook, receiver):
    def endpoint(message):
        url = f"http://127.0.0.1:{receiver.port}/{message.to}"
        return Endpoint(url, [SECRET, OLD], {"Authorization": "Basic abc"})

    target = webhook(endpoint, networks=HERE)
    assert await answer(target, message(**{"content-type": "text/plain"})) is None
    (post,) = receiver.posts
    assert post.path == "/hooks"
    assert post.headers["authorization"] == "Basic abc"
    assert post.headers["content-type"] == "text/plain"
    for secret in (SECRET, OLD):
        StandardSignature(secret).verify(post.headers, post.body, "", time.time())


async def test_an_id_that_cannot_be_signed_is_dead_at_once(webhook, receiver):
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    for name in ("order.7", "bestellung-ä"):
        assert isinstance(await answer(target, message(name)), UndeliverableError)
    assert receiver.posts == []


def test_what_cannot_be_configured():
    for url, why in (
        ("ftp://hooks.test", "begins with https"),
        ("https://", "has a host"),
        ("https://me:secret-word@hooks.test", "headers="),
        ("https://hooks.test:x", "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=why) as caught:
            Webhook(url, SECRET)
        assert "secret-word" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="secret"):
        Webhook("https://hooks.test")
    with pytest.raises(ConfigurationError, match="networks are given"):
        Webhook("https://hooks.test", SECRET, networks=["here"])
    with pytest.raises(ConfigurationError, match="function"):
        Webhook(7, SECRET)
    assert SECRET not in repr(Endpoint("https://hooks.test", SECRET))


# Which answers confirm it


@pytest.mark.parametrize("status", [200, 201, 299])
async def test_a_2xx_confirms_it(webhook, receiver, status):
    receiver.answers(status, body=b"thanks")
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    assert await answer(target) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, MessageRefusedError),
        (404, MessageRefusedError),
        (429, MessageRefusedError),
        (500, NotConfirmedError),
        (503, NotConfirmedError),
        (410, UndeliverableError),
    ],
)
async def test_another_answer_does_not(webhook, receiver, status, kind):
    receiver.answers(status, "Retry-After: 77", body=b"what-they-say")
    target = webhook(f"http://127.0.0.1:{receiver.port}/token", SECRET, networks=HERE)
    error = await answer(target)
    assert type(error) is kind
    assert str(status) in str(error)
    assert not any(secret in str(error) for secret in ("what-they-say", "token"))
    assert error.retry_after == (0 if status == 410 else 77)


async def test_a_pause_may_end_at_a_date(webhook, receiver):
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    receiver.answers(503, "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT")
    assert (await answer(target)).retry_after > 1e9
    for nonsense in ("soon", "9" * 5000):
        receiver.answers(503, f"Retry-After: {nonsense}")
        assert (await answer(target)).retry_after >= 0


async def test_no_answer_counts_and_is_no_outage(webhook, receiver):
    receiver.answer = b""
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    error = await answer(target, patience=2.0)
    assert type(error) is NotConfirmedError
    assert len(receiver.posts) == 1


async def test_a_receiver_that_is_not_there_counts_and_is_no_outage(webhook):
    async with receiving() as gone:
        port = gone.port
    error = await answer(webhook(f"http://127.0.0.1:{port}", SECRET, networks=HERE))
    assert type(error) is MessageRefusedError
    error = await answer(webhook("http://nobody.invalid", SECRET))
    assert type(error) is MessageRefusedError


async def test_what_was_too_late_to_begin_does_not_count(webhook, receiver):
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    assert type(await answer(target, patience=-1.0)) is TimeoutError
    assert receiver.posts == []


async def test_an_answer_is_not_read(webhook, receiver):
    receiver.answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    receiver.endless = True
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    assert await answer(target) is None
    await receiver.left.wait()


# Where it is never sent


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",  # noqa: S104 - this is what must not work
        "2130706433",
        "0x7f.1",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "224.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fec0::1]",
        "[fd00::1]",
        "[ff02::1]",
    ],
)
async def test_no_private_network_is_reached(webhook, receiver, host):
    error = await answer(webhook(f"http://{host}:{receiver.port}", SECRET))
    assert type(error) is MessageRefusedError
    assert "not public" in str(error)
    assert receiver.posts == []


def test_public_networks_and_allowed_ones_are():
    for address in ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        Networks().check("hooks.test", address)
    allowing = Networks(["10.1.0.0/16", "fd00::/8"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "fd00::1%eth0"):
        allowing.check("hooks.test", address)
    with pytest.raises(MessageRefusedError, match="not public"):
        allowing.check("hooks.test", "10.2.0.1")


async def test_a_redirect_is_not_followed(webhook, receiver):
    async with receiving("127.0.0.2") as inside:
        for status in (301, 302, 303, 307, 308):
            receiver.answers(status, f"Location: http://127.0.0.2:{inside.port}/")
            error = await answer(
                webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
            )
            assert type(error) is MessageRefusedError
            assert "redirects are not followed" in str(error)
        assert inside.posts == []
    assert len(receiver.posts) == 5


async def test_a_name_that_changes_reaches_what_was_checked(webhook, receiver, names):
    """DNS rebinding: the first answer may be reached, the second one is inside."""
    async with receiving("127.0.0.2", receiver.port) as inside:
        names.known["hooks.test"] = ["127.0.0.1", "127.0.0.2"]
        target = webhook(f"http://hooks.test:{receiver.port}", SECRET, networks=["127.0.0.1/32"])
        assert await answer(target) is None
        assert names.asked == ["hooks.test"]
        assert receiver.posts[0].headers["host"] == f"hooks.test:{receiver.port}"
        await target.aclose()  # so that it needs a new connection
        error = await answer(target)
        assert "not public" in str(error)
        assert inside.posts == []
    assert len(receiver.posts) == 1


async def test_one_address_inside_is_enough_to_refuse(webhook, receiver, names):
    names.known["hooks.test"] = [["127.0.0.1", "10.0.0.1"]]
    target = webhook(f"http://hooks.test:{receiver.port}", SECRET, networks=["127.0.0.1/32"])
    assert "not public" in str(await answer(target))
    assert receiver.posts == []


async def test_a_second_address_is_tried(webhook, receiver, names):
    names.known["hooks.test"] = [["127.0.0.3", "127.0.0.1"]]
    target = webhook(f"http://hooks.test:{receiver.port}", SECRET, networks=HERE)
    assert await answer(target) is None


async def test_the_certificate_is_that_of_the_name(webhook, names):
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("hooks.test").configure_cert(server)
    authority.configure_trust(client)
    names.known.update({"hooks.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    async with receiving(ssl=server) as receiver:
        for host, reached in (("hooks.test", True), ("other.test", False)):
            url = f"https://{host}:{receiver.port}"
            target = webhook(url, SECRET, networks=HERE, ssl_context=client)
            found = await answer(target)
            assert (found is None) is reached
    assert len(receiver.posts) == 1


# What becomes of it in an outbox


@pytest.fixture
async def open_relay(way_of, open_outbox):
    way, opened = way_of("sqlite3"), []
    outbox = open_outbox(way.url)

    def opened_relay(target):
        with way.transaction() as connection:
            outbox.put(connection, Message(id="m-1", body=b"1"), to="hooks")
        opened.append(AsyncRelay(way.url, target, max_tries=2))
        return way, outbox, opened[-1]

    yield opened_relay
    for one in opened:
        await one.aclose()


PAUSE = "SELECT (julianday(due_at) - julianday('now')) * 86400 FROM outbox_messages"
DUE = "UPDATE outbox_messages SET due_at = '2020-01-01 00:00:00'"


async def test_it_is_tried_for_28_hours(webhook, receiver, open_relay):
    receiver.answers(500)
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    way, outbox, relay = open_relay(target)
    total = 0.0
    for pause in (5, 300, 1800, 7200, 18000, 36000, 36000):
        assert outbox.dead_letters() == []
        begun = monotonic()
        await relay.drain()
        ((left,),) = way.execute(PAUSE)
        assert pause - (monotonic() - begun) - 0.1 <= left <= pause * 1.1
        total += pause
        way.execute(DUE)
    await relay.drain()
    (letter,) = outbox.dead_letters()
    assert letter.message.tries == 8
    assert letter.unknown
    assert "500" in letter.error
    assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1
    assert total / 3600 == pytest.approx(27.6, abs=0.1)


async def test_a_receiver_may_ask_for_a_longer_pause(webhook, receiver, open_relay):
    receiver.answers(429, "Retry-After: 3000")
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    way, _, relay = open_relay(target)
    begun = monotonic()
    await relay.drain()
    ((left,),) = way.execute(PAUSE)
    assert 3000 - (monotonic() - begun) - 0.1 <= left <= 3300


async def test_410_ends_it(webhook, receiver, open_relay):
    receiver.answers(410)
    target = webhook(f"http://127.0.0.1:{receiver.port}", SECRET, networks=HERE)
    _, outbox, relay = open_relay(target)
    await relay.drain()
    (letter,) = outbox.dead_letters()
    assert (letter.message.tries, letter.unknown) == (1, False)
    assert "410" in letter.error
