"""Frameworks that are given a protected function call it as they would call the plain one.

Those whose pins disagree with ours are in `tests/system/frameworks`.
"""

import asyncio
import logging

import celery  # type: ignore[import-untyped]  # celery has no types
import dramatiq
import httpx
import pytest
import typer
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware.asyncio import AsyncIO
from fastapi import FastAPI
from typer.testing import CliRunner

from oncekey import Once
from tests.patience import PATIENCE


class Shop:
    """Protected functions of each kind, which write down what they do."""

    def __init__(self):
        once = Once("memory://", observers=())
        ran = self.ran = []

        @once("charge:{order}")
        def charge(order: int) -> str:
            """Charge the card."""
            ran.append(order)
            return f"{order} is paid"

        @once("send:{order}")
        async def send(order: int) -> str:
            """Send the parcel."""
            await asyncio.sleep(0)
            ran.append(order)
            return f"{order} is sent"

        class Clerk:
            @once("sell:{order}")
            def sell(self, order: int) -> str:
                """Sell it."""
                ran.append(order)
                return f"{order} is sold"

            @once("deliver:{order}")
            async def deliver(self, order: int) -> str:
                """Deliver it."""
                await asyncio.sleep(0)
                ran.append(order)
                return f"{order} is delivered"

        clerk = Clerk()
        self.charge, self.send, self.sell, self.deliver = charge, send, clerk.sell, clerk.deliver


BLOCKING = [("charge", "{} is paid"), ("sell", "{} is sold")]
EVERY = [*BLOCKING, ("send", "{} is sent"), ("deliver", "{} is delivered")]
every = pytest.mark.parametrize(("name", "answer"), EVERY)
blocking = pytest.mark.parametrize(("name", "answer"), BLOCKING)


@pytest.fixture
def shop():
    return Shop()


@every
async def test_fastapi(shop, name, answer):
    app = FastAPI()
    app.post("/{order}")(getattr(shop, name))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        found = [await client.post("/1") for _ in range(2)]
        refused = await client.post("/one")
    assert [one.json() for one in found] == [answer.format(1)] * 2
    assert refused.status_code == 422  # the annotation is known
    assert shop.ran == [1]


@blocking
def test_typer(shop, name, answer):
    app = typer.Typer()

    app.command()(getattr(shop, name))
    found = [CliRunner().invoke(app, ["2"], standalone_mode=False) for _ in range(2)]
    assert [one.return_value for one in found] == [answer.format(2)] * 2
    assert CliRunner().invoke(app, ["two"]).exit_code == 2  # the annotation is known
    assert shop.ran == [2]


@blocking
def test_celery(shop, name, answer):
    app = celery.Celery(set_as_current=False)
    task = app.task(name="work")(getattr(shop, name))
    assert [task.apply((3,)).get() for _ in range(2)] == [answer.format(3)] * 2
    assert task(3) == answer.format(3)
    assert shop.ran == [3]


@every
def test_dramatiq(shop, name, answer, caplog):
    caplog.set_level(logging.CRITICAL)
    broker = StubBroker()
    broker.add_middleware(AsyncIO())
    answers = []

    class Heard(dramatiq.Middleware):
        def after_process_message(self, broker, message, *, result=None, exception=None):
            answers.append(exception or result)

    broker.add_middleware(Heard())
    actor = dramatiq.actor(actor_name="work", broker=broker)(getattr(shop, name))
    broker.emit_after("process_boot")
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=100)
    worker.start()
    try:
        for _ in range(2):
            actor.send(4)
        broker.join(actor.queue_name, timeout=int(PATIENCE * 1000))
        worker.join()
    finally:
        worker.stop()
        broker.close()
    assert answers == [answer.format(4)] * 2
    assert shop.ran == [4]
