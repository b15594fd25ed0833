"""`oncekey relay` in a process of its own, to a real JetStream."""

import json
import signal
import sqlite3
import subprocess
from contextlib import closing

import nats
import pytest

from oncekey.outbox import Message, Outbox
from tests.cli.page import environment
from tests.patience import PATIENCE
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

    def start(*arguments):
        process = subprocess.Popen(
            ["oncekey", "relay", url, *arguments],  # noqa: S607 - beside this interpreter
            env=environment(),
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
    await context.add_stream(name=stream_name, subjects=[f"{stream_name}.>"])
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--to", "kafka://localhost"), "not to kafka://"),
        (("--to", "nats://a", "--to", "nats://b"), "says twice where '*' goes"),
        ((), "--to"),
    ],
)
def test_what_it_does_not_understand(start, arguments, words):
    process = start(*arguments)
    complaints = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 2
    assert words in complaints
