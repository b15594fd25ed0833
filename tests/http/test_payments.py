"""The payment service of the examples: what it checks, what it charges, and what it says."""

import asyncio
import inspect
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from examples.payments import gateway
from examples.payments.app import app, make_app
from examples.payments.gateway import Gateway
from oncekey import Once
from oncekey.core.requests import Scan
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.patience import until_async

BODY = {"userId": "u1", "amount": 100, "currency": "VND", "idempotencyKey": "idem_aaaa1111"}
DAY = 24 * 3600 * 1_000_000


class Shop:
    """The service on a store of its own, with all that a test wants to see of it."""

    def __init__(self, book: Any) -> None:
        self.clock = FakeClock()
        self.store = FaultyStore(MemoryStore(clock=self.clock))
        self.once = Once(self.store)  # type: ignore[arg-type]  # its verbs are made at run time
        self.gateway = Gateway(book, seconds=0.001)
        self.settle_in()

    def settle_in(self, **settings: Any) -> None:
        app = make_app(self.once, self.gateway, **settings)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://shop.example"
        )

    async def post(self, *, headers: Any = None, **changes: Any) -> httpx.Response:
        return await self.send(json.dumps({**BODY, **changes}), headers)

    async def send(self, content: str | bytes, headers: Any = None) -> httpx.Response:
        headers = {"content-type": "application/json", **(headers or {})}
        return await self.client.post("/payments", content=content, headers=headers)

    @property
    def charged(self) -> int:
        return len(self.gateway.charges())

    def records(self) -> Any:
        return self.store.store.scan(Scan()).records


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "book.db")


def replayed(answer: httpx.Response) -> bool:
    return bool(answer.headers.get("idempotent-replayed") == "true")


# P1: what is checked, and in which order

OBJECT = ("body", "must be an object")
USER = ("userId", "must be a non-empty string")
AMOUNT = ("amount", "must be a number above zero")
CURRENCY = ("currency", "must be one of VND, USD")
KEY = ("idempotencyKey", "must be a string of 8 or more characters")


@pytest.mark.row("P1", "P9")
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        *[({"userId": user}, USER) for user in ("", None, 1, True, ["u1"])],
        *[({"amount": amount}, AMOUNT) for amount in (0, -1, -0.5, None, "100", True, [1])],
        *[({"amount": amount}, AMOUNT) for amount in (10**400, float("nan"), float("inf"))],
        *[({"currency": currency}, CURRENCY) for currency in ("EUR", "vnd", "", None, ["VND"])],
        *[({"idempotencyKey": key}, KEY) for key in ("", "short_7", None, 12345678, ["12345678"])],
    ],
)
async def test_the_first_fault_is_named_and_leaves_no_record(shop, changes, fault):
    refused = await shop.post(**changes)
    field, message = fault
    assert refused.status_code == 400
    assert refused.json() == {"error": "validation", "field": field, "message": message}
    assert not shop.charged
    assert not shop.store.calls


@pytest.mark.row("P1")
async def test_the_order_in_which_it_is_checked(shop):
    body = {"userId": "", "amount": 0, "currency": "EUR", "idempotencyKey": ""}
    for name, right in BODY.items():
        assert (await shop.send(json.dumps(body))).json()["field"] == name
        body[name] = right
    assert (await shop.send(json.dumps(body))).status_code == 200


@pytest.mark.row("P1", "P9")
@pytest.mark.parametrize(
    "content",
    [
        *("", "null", '"text"', "17", "{", "not json", '{"userId": "u1",}'),
        *(b"\xff\xfe", b"\xef\xbb\xbf", '{"a":' * 100_000, "[" * 100_000, "9" * 5000),
    ],
)
async def test_a_body_that_is_no_object(shop, content):
    refused = await shop.send(content)
    assert refused.status_code == 400
    assert refused.json() == {"error": "validation", "field": OBJECT[0], "message": OBJECT[1]}
    assert not shop.store.calls


@pytest.mark.row("P1")
async def test_an_array_has_no_members(shop):
    """As in JavaScript, where it is an object."""
    refused = await shop.send("[]")
    assert refused.status_code == 400
    assert refused.json() == {"error": "validation", "field": USER[0], "message": USER[1]}


@pytest.mark.row("P1")
@pytest.mark.parametrize("key", ["ключ_ключ", "k" * 256, "tab\there", "支付支付支付支付"])
async def test_a_key_may_be_written_in_anything(shop, key):
    first, again = [await shop.post(idempotencyKey=key) for _ in range(2)]
    assert first.status_code == 200
    assert again.content == first.content
    assert shop.charged == 1
    assert (await shop.post(idempotencyKey=key + "!")).status_code == 200
    assert shop.charged == 2


@pytest.mark.row("P1")
@pytest.mark.parametrize("more", ['"trace": NaN', r'"trace": "\ud800"'])
async def test_what_only_python_takes_for_json_is_no_object_either(shop, more):
    refused = await shop.send(json.dumps(BODY)[:-1] + f", {more}}}")
    assert refused.status_code == 400
    assert refused.json()["field"] == "body"
    assert not shop.charged


@pytest.mark.row("P1")
@pytest.mark.parametrize(
    ("amount", "currency"), [(100, "VND"), (0.5, "USD"), (1e300, "USD"), (2**70 + 1, "VND")]
)
async def test_a_payment_that_succeeds(shop, amount, currency):
    paid = await shop.post(amount=amount, currency=currency)
    assert paid.status_code == 200
    assert paid.headers["content-type"] == "application/json"
    said = paid.json()
    assert said.pop("paymentId").startswith("pay_")
    assert said == {"status": "succeeded", "chargedAmount": amount, "currency": currency}
    assert not replayed(paid)
    (charge,) = shop.gateway.charges()
    assert (charge.amount, charge.currency, charge.reason) == (amount, currency, None)


@pytest.mark.row("P1")
@pytest.mark.parametrize(
    ("amount", "reason"),
    [(98, "insufficient_funds"), (77, "insufficient_funds"), (22, "gateway_unavailable")],
)
async def test_a_payment_that_fails(shop, amount, reason):
    failed = await shop.post(amount=amount)
    assert failed.status_code == 200
    assert failed.json() == {"status": "failed", "reason": reason}


@pytest.mark.row("P1")
def test_the_pretended_gateway_takes_its_time():
    assert gateway.SECONDS == 0.08
    assert inspect.signature(Gateway).parameters["seconds"].default == gateway.SECONDS


# P2 to P7: the same request, another, many, later, failed


@pytest.mark.row("P2")
async def test_a_retry_gets_the_same_bytes(shop):
    first, again = await shop.post(), await shop.post()
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert (replayed(first), replayed(again)) == (False, True)
    assert shop.charged == 1


@pytest.mark.row("P3", "P9")
@pytest.mark.parametrize("changes", [{"amount": 121}, {"amount": 100.01}, {"currency": "USD"}])
async def test_another_request_under_the_same_key_is_a_conflict(shop, changes):
    first = await shop.post()
    refused = await shop.post(**changes)
    assert refused.status_code == 409
    assert refused.json() == {
        "error": "conflict",
        "message": "This idempotency key was used for another request; a new request needs a new "
        "key.",
    }
    assert (await shop.post()).content == first.content
    assert shop.charged == 1


@pytest.mark.row("P4")
async def test_those_that_come_together_wait_for_one_charge(shop):
    answers = await asyncio.gather(*[shop.post(amount=101) for _ in range(20)])
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sum(map(replayed, answers)) == 19
    assert shop.charged == 1


@pytest.mark.row("P4")
async def test_they_are_told_to_come_back_where_so_configured(shop):
    shop.settle_in(wait=0)
    async with hanging(shop) as first:
        told = await shop.post()
        assert told.status_code == 202
        assert told.headers["retry-after"] == "1"
        assert told.json() == {"status": "in_progress", "retry_after": 1}
    assert (await shop.post()).content == (await first).content


@asynccontextmanager
async def hanging(shop):
    """A request whose charge is under way until the block ends."""
    inside, go_on = asyncio.Event(), asyncio.Event()
    real = shop.gateway.charge

    async def held(*facts):
        inside.set()
        await go_on.wait()
        return await real(*facts)

    shop.gateway.charge = held
    request = asyncio.ensure_future(shop.post())
    await inside.wait()
    yield request
    go_on.set()
    await request


@pytest.mark.row("P5")
async def test_when_the_lifetime_is_over_it_is_charged_anew(shop):
    first = await shop.post()
    shop.clock.advance("23h")
    assert (await shop.post()).content == first.content
    shop.clock.advance("2h")
    anew = await shop.post()
    assert not replayed(anew)
    assert anew.json()["paymentId"] != first.json()["paymentId"]
    assert shop.charged == 2


@pytest.mark.row("P5")
async def test_old_records_vanish_without_anybodys_help(tmp_path):
    shop = Shop(tmp_path / "book.db")
    shop.settle_in(ttl="1h")
    await shop.post(idempotencyKey="the old one")
    (old,) = shop.records()
    assert old.expires - old.finished == DAY / 24
    shop.clock.advance("2h")
    assert not shop.records()
    assert shop.once.purge() == 1


@pytest.mark.row("P6")
@pytest.mark.parametrize("amount", [98, 22])
async def test_policy_a_keeps_a_failure_and_replays_it(shop, amount):
    first, again = await shop.post(amount=amount), await shop.post(amount=amount)
    assert first.json()["status"] == "failed"
    assert again.content == first.content
    assert replayed(again)
    assert shop.charged == 1


@pytest.mark.row("P6")
async def test_policy_b_forgets_a_failure(shop):
    shop.settle_in(failures="forgotten")
    first, again = await shop.post(amount=98), await shop.post(amount=98)
    assert again.json() == first.json() == {"status": "failed", "reason": "insufficient_funds"}
    assert not replayed(again)
    assert shop.charged == 2
    await shop.post(idempotencyKey="a success is kept")
    assert replayed(await shop.post(idempotencyKey="a success is kept"))
    assert shop.charged == 3


@pytest.mark.row("P6")
async def test_policy_b_does_not_take_an_old_failure_for_the_outcome_of_a_new_attempt(shop):
    shop.settle_in(failures="forgotten", time_out=0.05)
    await shop.post(amount=98)  # forgotten, but it is in the book
    shop.gateway._seconds = 30
    assert (await shop.post(amount=98)).status_code == 504
    shop.gateway._seconds = 0
    assert not replayed(await shop.post(amount=98))
    assert shop.charged == 2


@pytest.mark.row("P7")
@pytest.mark.parametrize(
    "same",
    [
        '{"idempotencyKey":"idem_aaaa1111","currency":"VND","amount":100.0,"userId":"u1"}',
        '{ "userId" : "u1", "amount" : 1e2, "currency" : "VND", "idempotencyKey": "idem_aaaa1111"}',
        '{"userId":"u1","amount":100,"currency":"VND","idempotencyKey":"idem_aaaa1111","note":"2"}',
    ],
)
async def test_requests_are_the_same_by_what_they_mean(shop, same):
    first = await shop.post()
    again = await shop.send(same)
    assert again.content == first.content
    assert shop.charged == 1


# P8, P13: the gateway does not answer


@pytest.mark.row("P8", "P9", "P13")
async def test_a_gateway_that_does_not_answer_is_cut_off_and_asked_before_it_charges_again(shop):
    shop.settle_in(time_out=0.4)  # it charges at once, however busy the machine
    cut_off = await shop.post(amount=130)
    assert cut_off.status_code == 504
    assert cut_off.json() == {"error": "timeout", "operation": "charge", "ms": 400}
    (record,) = shop.records()
    assert (record.status, record.uncertain) == ("released", True)
    assert record.notes["reference"] == shop.gateway.charges()[0].reference
    again = await shop.post(amount=130)
    assert again.status_code == 200
    assert again.json() == {
        "paymentId": "pay_000001",
        "status": "succeeded",
        "chargedAmount": 130,
        "currency": "VND",
    }
    assert (await shop.post(amount=130)).content == again.content
    assert shop.charged == 1


@pytest.mark.row("P8")
async def test_a_gateway_that_was_cut_off_before_it_charged_is_asked_again(shop):
    shop.settle_in(time_out=0.05)
    shop.gateway._seconds = 30
    assert (await shop.post()).status_code == 504
    assert not shop.charged
    shop.gateway._seconds = 0
    assert (await shop.post()).json()["status"] == "succeeded"
    assert shop.charged == 1


@pytest.mark.row("P8", "P13")
async def test_those_that_waited_for_one_that_was_cut_off_get_what_the_book_says(shop):
    shop.settle_in(time_out=0.05)
    answers = await asyncio.gather(*[shop.post(amount=130) for _ in range(5)])
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 504]
    assert shop.charged == 1


@pytest.mark.row("P13")
async def test_a_charge_whose_response_could_not_be_recorded_is_not_repeated(shop, monkeypatch):
    monkeypatch.setattr("oncekey.engine.engine_async.SETTLE_PATIENCE", 0.0)
    shop.store.cut_off("settle", 1000)
    refused = await shop.post()
    assert refused.status_code == 503
    shop.store.heal()

    async def recorded():
        """Ask now and then: a thousand times in a second is too often for the shop."""
        again = await shop.post()
        return None if again.status_code == 503 else again

    again = await until_async(recorded)
    assert again.json()["paymentId"] == "pay_000001"
    assert shop.charged == 1


# P9: the shapes that no other test shows


@pytest.mark.row("P9")
async def test_a_user_in_a_hurry_is_told_when_to_come_back(shop, monkeypatch):
    now = SimpleNamespace(monotonic=lambda: 1000.25)  # all of it happens at once
    monkeypatch.setattr("examples.payments.app.time", now)
    shop.settle_in(per_second=2)
    answers = [await shop.post(idempotencyKey=f"key-of-{n:04}") for n in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    said = answers[-1].json()
    assert said.keys() == {"error", "retryAfterMs"}
    assert said["error"] == "rate_limited"
    assert 0 < said["retryAfterMs"] <= 1000
    assert (await shop.post(userId="u2")).status_code == 200
    assert {record.key for record in shop.records()} == {
        "key-of-0000",
        "key-of-0001",
        BODY["idempotencyKey"],
    }


@pytest.mark.row("P9")
async def test_the_environment_says_how_many_a_user_may_ask_for(monkeypatch, tmp_path):
    """As the documentation shows it: PAYMENTS_PER_SECOND=1."""
    monkeypatch.setattr("examples.payments.app.time", SimpleNamespace(monotonic=lambda: 1000.25))
    for name, value in (
        ("PAYMENTS_PER_SECOND", "1"),
        ("PAYMENTS_BOOK", str(tmp_path / "book.db")),
        ("ONCEKEY_STORE", "memory://"),
    ):
        monkeypatch.setenv(name, value)
    transport = httpx.ASGITransport(app())
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answers = [await client.post("/payments", json=BODY) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


@pytest.mark.row("P9")
@pytest.mark.parametrize("verb", ["claim", "note"])
async def test_while_the_store_is_down_nothing_is_charged(shop, verb):
    shop.store.refuse(verb)
    refused = await shop.post()
    assert refused.status_code == 503
    assert refused.json() == {"error": "downstream_unavailable", "service": "idempotency store"}
    assert refused.headers["retry-after"] == "1"
    assert not shop.charged
    assert (await shop.post()).status_code == 200


# P10, P12: whose it is


@pytest.mark.row("P10")
async def test_equal_keys_of_two_users_never_meet(shop):
    one, two = await shop.post(), await shop.post(userId="u2", amount=200)
    assert one.json()["paymentId"] != two.json()["paymentId"]
    assert (await shop.post()).content == one.content
    assert (await shop.post(userId="u2", amount=200)).content == two.content
    assert sorted(record.scope for record in shop.records()) == ["u1", "u2"]


@pytest.mark.row("P12")
async def test_the_request_id_reaches_the_gateway_and_the_record(shop):
    paid = await shop.post(headers={"x-request-id": "req-from-client"})
    assert paid.headers["x-request-id"] == "req-from-client"
    assert shop.gateway.charges()[0].request_id == "req-from-client"
    (record,) = shop.records()
    assert record.notes["request_id"] == "req-from-client"


@pytest.mark.row("P12")
async def test_requests_that_run_at_the_same_time_have_their_own_ids(shop):
    answers = await asyncio.gather(
        *[shop.post(idempotencyKey=f"key-of-{n:04}", amount=n + 1) for n in range(6)]
    )
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == 6
    booked = {charge.amount: charge.request_id for charge in shop.gateway.charges()}
    assert [booked[n + 1] for n in range(6)] == ids


@pytest.mark.row("P12")
@pytest.mark.parametrize("sent", [b"", b"caf\xc3\xa9", b"x" * 101, b"a\tb"])
async def test_an_id_that_cannot_be_used_is_replaced(shop, sent):
    paid = await shop.post(headers={"x-request-id": sent})
    assert paid.headers["x-request-id"].startswith("req_")


@pytest.mark.row("P12")
async def test_a_replay_has_the_id_of_its_own_request(shop):
    await shop.post(headers={"x-request-id": "one"})
    assert (await shop.post(headers={"x-request-id": "two"})).headers["x-request-id"] == "two"
    assert [charge.request_id for charge in shop.gateway.charges()] == ["one"]
