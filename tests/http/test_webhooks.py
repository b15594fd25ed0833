"""The receiver of webhooks of the examples: what a provider is told, and how often it is heard."""

import asyncio
import hashlib
import hmac
import logging
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from examples.webhooks.app import Receiver, make_app
from oncekey import Once
from oncekey.core.requests import Scan
from oncekey.http import WEBHOOK, presets
from oncekey.observe.log import LogObserver
from oncekey.observe.prometheus import PrometheusObserver
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore

EVENT = {"id": "webhook-001", "anchor_transaction_id": "anchor-tx-12345"}
SUCCESS = {"success": True, "message": "Webhook webhook-001 processed successfully"}
BUSY = {"error": "Request is currently being processed", "retry_after": 5}
CACHED = {"cached": True, "message": "Request already processed"}
MINUTE = 60_000_000


class Gated(Receiver):
    """A receiver that can be held up, and that can fail."""

    fails = False

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def process(self, name: str) -> None:
        self.inside.set()
        await self.go_on.wait()
        if self.fails:
            raise ValueError("no")
        await super().process(name)


class Inlet:
    """The service on a store of its own, or on that of another instance."""

    def __init__(self, file: Any, beside: "Inlet | None" = None, **settings: Any) -> None:
        self.clock: FakeClock = beside.clock if beside else FakeClock()
        memory: Any = beside.store.store if beside else MemoryStore(clock=self.clock)
        self.store: FaultyStore = FaultyStore(memory)
        self.registry = CollectorRegistry()
        observers = [LogObserver(), PrometheusObserver(self.registry)]
        self.once = Once(self.store, observers=observers)  # type: ignore[arg-type]  # its verbs are made at run time
        self.receiver = Gated(file)
        transport = httpx.ASGITransport(
            make_app(self.once, self.receiver, **settings), raise_app_exceptions=False
        )
        self.client = httpx.AsyncClient(transport=transport, base_url="http://shop.example")

    async def deliver(
        self, key: str | bytes | None = "anchor-tx-12345", **more: Any
    ) -> httpx.Response:
        headers: Any = {} if key is None else {"x-idempotency-key": key}
        more.setdefault("json", EVENT)
        return await self.client.post("/webhook", headers=headers, **more)

    def records(self) -> Any:
        return self.store.store.scan(Scan()).records

    def checks(self, result: str) -> float:
        return self.registry.get_sample_value("idempotency_check_total", {"result": result}) or 0


@pytest.fixture
def inlet_of(tmp_path):
    return lambda *args, **more: Inlet(tmp_path / "events.txt", *args, **more)


@pytest.fixture
def inlet(inlet_of):
    return inlet_of()


@pytest.mark.row("W1")
@pytest.mark.parametrize("key", [None, "", " ", "k" * 256, "two,keys", '"open', b"caf\xc3\xa9"])
async def test_without_a_usable_key_nothing_is_touched(inlet, key):
    refused = await inlet.deliver(key)
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert not inlet.store.calls
    assert not inlet.receiver.processed()


@pytest.mark.row("W1")
async def test_a_providers_own_header_and_signature(inlet_of):
    inlet = inlet_of(profile=presets.github("a secret"))
    body = b'{"id": "push-1"}'
    signature = f"sha256={hmac.digest(b'a secret', body, 'sha256').hex()}"
    headers = {"X-GitHub-Delivery": "72d3162e", "X-Hub-Signature-256": signature}
    forged = {**headers, "X-Hub-Signature-256": f"sha256={hashlib.sha256(body).hexdigest()}"}
    assert (await inlet.client.post("/webhook", content=body, headers=forged)).status_code == 401
    assert not inlet.store.calls
    answers = [await inlet.client.post("/webhook", content=body, headers=headers) for _ in "12"]
    assert [answer.json() for answer in answers] == [
        {"success": True, "message": "Webhook push-1 processed successfully"},
        CACHED,
    ]
    (record,) = inlet.records()
    assert record.expires - record.finished == 7 * 24 * 60 * MINUTE


@pytest.mark.row("W2")
async def test_a_new_delivery_is_locked_for_five_minutes_and_kept_for_a_day(inlet):
    inlet.receiver.go_on.clear()
    first = asyncio.ensure_future(inlet.deliver())
    await inlet.receiver.inside.wait()
    (running,) = inlet.records()
    assert (running.scope, running.key, running.status) == (None, "anchor-tx-12345", "running")
    assert running.lease_end - running.started == 5 * MINUTE
    inlet.receiver.go_on.set()
    assert (await first).status_code == 200
    assert (await first).json() == SUCCESS
    (done,) = inlet.records()
    assert done.status == "completed"
    assert done.expires - done.finished == 24 * 60 * MINUTE


@pytest.mark.row("W2")
async def test_after_a_failure_the_key_is_free(inlet):
    inlet.receiver.fails = True
    assert (await inlet.deliver()).status_code == 500
    inlet.receiver.fails = False
    assert (await inlet.deliver()).json() == SUCCESS
    assert inlet.receiver.processed() == ["webhook-001"]


@pytest.mark.row("W2")
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"id": 1}', b'{"id": ""}', rb'{"id": "\ud800"}', b"[" * 100_000, b"\xff"],
)
async def test_an_event_without_an_id_is_refused_and_may_come_again(inlet, content):
    assert (await inlet.deliver(content=content, json=None)).status_code == 400
    assert not inlet.receiver.processed()
    assert (await inlet.deliver()).json() == SUCCESS


@pytest.mark.row("W3")
async def test_a_repeat_during_the_run(inlet):
    inlet.receiver.go_on.clear()
    first = asyncio.ensure_future(inlet.deliver())
    await inlet.receiver.inside.wait()
    told = await inlet.deliver()
    assert told.status_code == 429
    assert told.headers["retry-after"] == "5"
    assert told.json() == BUSY
    inlet.receiver.go_on.set()
    assert (await first).json() == SUCCESS


@pytest.mark.row("W4")
async def test_a_repeat_after_the_run(inlet):
    await inlet.deliver()
    again = await inlet.deliver()
    assert again.status_code == 200
    assert again.json() == CACHED
    assert inlet.receiver.processed() == ["webhook-001"]


@pytest.mark.row("W4", "W8")
async def test_the_exact_first_response_where_so_configured(inlet_of):
    inlet = inlet_of(profile=WEBHOOK.replace(replay="exact"))
    first, again = await inlet.deliver(), await inlet.deliver()
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    assert inlet.receiver.processed() == ["webhook-001"]


@pytest.mark.row("W6")
async def test_with_the_store_out_of_reach_it_is_processed_and_a_warning_says_so(inlet, caplog):
    inlet.store.cut_off("claim", 100)
    with caplog.at_level(logging.WARNING, "oncekey"):
        assert (await inlet.deliver()).json() == SUCCESS
    assert "idempotency check failed, processing anyway" in caplog.text
    assert inlet.receiver.processed() == ["webhook-001"]


@pytest.mark.row("W7")
async def test_a_record_holds_the_status_and_no_part_of_the_body(inlet):
    await inlet.deliver(json={"id": "webhook-of-a-customer", "card": "4242"})
    (record,) = inlet.records()
    kept = repr(record)
    assert "webhook-of-a-customer" not in kept
    assert "4242" not in kept
    assert len(record.result) < 10


@pytest.mark.row("W7")
async def test_the_lifetime_limits_the_memory(inlet):
    for number in range(5):
        await inlet.deliver(f"key-{number}")
    inlet.clock.advance("25h")
    assert not inlet.records()
    assert inlet.once.purge() == 5


@pytest.mark.row("W8")
async def test_any_number_of_instances_share_the_work(inlet, inlet_of):
    others = [inlet_of(inlet) for _ in range(4)]
    answers = await asyncio.gather(*[one.deliver() for one in (inlet, *others) for _ in "1234"])
    assert sorted(answer.status_code for answer in answers).count(200) >= 1
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert inlet.receiver.processed() == ["webhook-001"]


@pytest.mark.row("W8")
async def test_metrics_give_the_rate_of_repeats_and_the_ratio_of_hits(inlet):
    for key in ("a", "b", "a", "a", "a"):
        await inlet.deliver(key)
    assert (inlet.checks("new"), inlet.checks("duplicate")) == (2, 3)
    hits = inlet.checks("duplicate") / (inlet.checks("new") + inlet.checks("duplicate"))
    assert hits == 0.6


@pytest.mark.row("W8")
async def test_each_environment_has_its_own_lifetimes(inlet_of, monkeypatch):
    monkeypatch.setenv("ONCEKEY_TTL", "1h")
    inlet = inlet_of()
    await inlet.deliver()
    (record,) = inlet.records()
    assert record.expires - record.finished == 60 * MINUTE


@pytest.mark.row("W9")
async def test_a_handler_that_hangs_loses_its_lock_when_five_minutes_have_passed(inlet, inlet_of):
    other = inlet_of(inlet)
    inlet.receiver.go_on.clear()
    hanging = asyncio.ensure_future(inlet.deliver())
    await inlet.receiver.inside.wait()
    inlet.clock.advance("299s")
    assert (await other.deliver()).status_code == 429
    inlet.clock.advance("2s")
    assert (await other.deliver()).json() == SUCCESS
    inlet.receiver.go_on.set()
    assert (await hanging).json() == CACHED
