"""The consumer in `examples/consumer`, on real servers: killed, delivered again, asked twice."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import nats
import psycopg

from tests.patience import PATIENCE
from tests.servers.nats_fixtures import nats_server

__all__ = ["nats_server"]

ROOT = Path(__file__).parents[2]
# As the example, but between the transaction and the receipt the process is gone.
DYING = """
import asyncio, os, signal
from examples.consumer import app
from faststream import BaseMiddleware

class Dying(BaseMiddleware):
    async def publish_scope(self, call_next, cmd):
        os.kill(os.getpid(), signal.SIGKILL)

app.broker.add_middleware(Dying)
asyncio.run(app.app.run())
"""


@contextmanager
def consumer(*words, **environment):
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *words],
        cwd=ROOT,
        env={**os.environ, "ACK_WAIT": "0.5", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def place(js, number):
    headers = {"Nats-Msg-Id": f"order-{number}", "content-type": "application/json"}
    body = json.dumps({"number": number, "total": 40}).encode()
    await js.publish("orders.placed", body, headers=headers)


async def test_a_killed_consumer_leaves_one_row_and_one_receipt(nats_server, postgres_url):
    places = {"NATS_URL": nats_server.url, "DATABASE_URL": postgres_url}
    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.placed"], duplicate_window=0.1)
    await js.add_stream(name="RECEIPTS", subjects=["orders.billed"])
    receipts = await js.subscribe("orders.billed", ordered_consumer=True)
    try:
        await place(js, "A-17")
        with consumer("-c", DYING, **places) as first:
            assert await asyncio.to_thread(first.wait, PATIENCE) == -signal.SIGKILL
            assert first.stdout.read() == "billed A-17, attempt 1\n"
        assert (await js.stream_info("RECEIPTS")).state.messages == 0

        with consumer("-m", "examples.consumer", **places) as second:
            receipt = await receipts.next_msg(PATIENCE)
            assert json.loads(receipt.data) == {"order": "A-17", "paid": 40}
            await place(js, "A-17")  # the producer asks again, after JetStream has forgotten
            await place(js, "A-18")
            assert json.loads((await receipts.next_msg(PATIENCE)).data)["order"] == "A-18"
            second.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(second.wait, PATIENCE) == 0
            assert second.stdout.read() == "billed A-18, attempt 1\n"
            assert second.stderr.read() == ""
        assert (await js.stream_info("RECEIPTS")).state.messages == 2
        assert (await js.stream_info("ORDERS")).state.messages == 3
        with psycopg.connect(postgres_url) as connection:
            rows = connection.execute("SELECT number, total FROM orders ORDER BY 1").fetchall()
            marks = connection.execute(
                "SELECT consumer, idempotency_key, status FROM processed_messages ORDER BY 2"
            ).fetchall()
        assert rows == [("A-17", 40), ("A-18", 40)]
        name = "billing/examples.consumer.app.bill"
        assert marks == [(name, f"order-A-{n}", "completed") for n in (17, 18)]
    finally:
        for name in ("ORDERS", "RECEIPTS"):
            await js.delete_stream(name)
        await client.close()
