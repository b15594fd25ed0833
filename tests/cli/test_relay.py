"""`oncekey relay` in a process of its own, to a real JetStream."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import time
from base64 import b64encode
from contextlib import closing

import nats
import pytest

from oncekey.http.signatures import StandardSignature
from oncekey.outbox import Message, Outbox
from tests.cli.page import environment
from tests.outbox.receivers import receiving
from tests.patience import PATIENCE, until, until_async
from tests.servers.nats_fixtures import nats_server, stream_name

__all__ = ["nats_server", "stream_name"]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def put(url):
    outbox = Outbox(url)

    def put(*names, to):
        with closing(sqlite3.connect(outbox_file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                for name in names:
                    outbox.put(connection, Message(id=name), to=to, key="7")

    outbox_file = url.removeprefix("sqlite:///")
    yield put
    outbox.close()


@pytest.fixture
def start(url):
    """Starts the command; it ends with the test."""
    started = []

    def start(*arguments, cwd=None, **variables):
        process = subprocess.Popen(
            ["oncekey", "relay", url, *arguments],  # noqa: S607 - beside this interpreter
            env={**environment(), **variables},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
async def orders(nats_server, stream_name):
    """The name of a stream, and a subscription to it."""
    client = await nats.connect(nats_server.url)
    context = client.jetstream()
    subjects = [f"{stream_name}.>"]
    await context.add_stream(name=stream_name, subjects=subjects, duplicate_window=3600)
    yield stream_name, await context.subscribe(f"{stream_name}.>")
    await client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_sends_until_it_is_told_to_stop(put, start, orders, nats_server, number):
    stream_name, read = orders
    put("a", "b", to=f"{stream_name}.paid")
    process = start("--to", nats_server.url, "--json", "--poll", "10ms")
    begun = json.loads(process.stdout.readline())
    assert (begun["event"], begun["dead"], begun["late"]) == ("started", 0, 0)
    got = [(await read.next_msg(PATIENCE)).headers["Nats-Msg-Id"] for _ in range(2)]
    put("c", to=f"{stream_name}.paid")
    got.append((await read.next_msg(PATIENCE)).headers["Nats-Msg-Id"])
    assert got == ["a", "b", "c"]
    process.send_signal(number)
    out, complaints = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaints) == (0, "")
    ended = json.loads(out.splitlines()[-1])
    assert (ended["event"], ended["sent"], ended["pending"]) == ("stopped", 3, 0)


def test_destinations_may_go_to_different_places(put, start, nats_server):
    put("a", to="nobody.knows")
    process = start(
        "--to", f"nobody.*={nats_server.url}", "--to", "redis://127.0.0.1:9",
        *("--max-tries", "1", "--every", "10ms"),
    )  # fmt: skip
    while " 1 dead" not in process.stdout.readline():
        pass
    process.terminate()
    out, complaints = process.communicate(timeout=PATIENCE)
    assert "0 wait" in out.splitlines()[-1]
    assert "no stream takes this subject" in complaints


async def test_a_webhook_has_its_secret_from_the_environment(put, start):
    put("a", to="hooks")
    secret = "whsec_" + b64encode(b"a" * 24).decode()
    async with receiving() as receiver:
        process = start(
            *("--to", f"http://127.0.0.1:{receiver.port}/in", "--json"),
            ONCEKEY_WEBHOOK_SECRET=secret,
            ONCEKEY_WEBHOOK_NETWORKS="127.0.0.0/8",
        )
        await until_async(lambda: receiver.posts)
        process.terminate()
        out, complaints = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert complaints == ""
    assert json.loads(out.splitlines()[-1])["sent"] == 1
    (post,) = receiver.posts
    StandardSignature(secret).verify(post.headers, post.body, "", time.time())


SHOP = """
from pathlib import Path

from taskiq import InMemoryBroker

broker = InMemoryBroker()


@broker.task("charge")
def charge() -> None:
    Path("charged").touch()
"""


def test_jobs_are_sent_by_an_object_of_your_own(put, start, tmp_path):
    (tmp_path / "shop_jobs.py").write_text(SHOP)
    put("a", to="charge")
    process = start("--to", "charge=taskiq://shop_jobs:broker", cwd=tmp_path)
    until((tmp_path / "charged").exists)
    process.terminate()
    assert process.communicate(timeout=PATIENCE)[1] == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--to", "ftp://localhost"), "not to ftp://"),
        (("--to", "https://hooks.test"), "set $ONCEKEY_WEBHOOK_SECRET"),
        (("--to", "celery://shop"), "must name a module and an object"),
        (("--to", "celery://nothing.here:app"), "cannot be loaded"),
        (("--to", "nats://a", "--to", "nats://b"), "says twice where '*' goes"),
        ((), "--to"),
    ],
)
def test_what_it_does_not_understand(start, arguments, words):
    process = start(*arguments)
    complaints = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 2
    assert words in complaints
