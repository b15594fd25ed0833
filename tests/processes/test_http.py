"""Payments and orders over real HTTP: two server processes on one store, each store in turn."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.demo import serving
from examples.demo.cases import CASES
from examples.demo.process import ServerProcess
from examples.demo.server import BOOK
from examples.demo.talk import payment, send
from examples.payments.gateway import Gateway
from tests.patience import PATIENCE, until
from tests.processes import http_commands
from tests.processes.http_commands import BASE, Command, commands, in_order, send_all

PAGE = Path(__file__).parents[2] / "docs" / "http-payments.md"
SERVICE = "tests.processes.http_service"
CROWD = 100
# Nothing is encrypted there, and loading certificates is slow.
LOOPBACK: Any = {"timeout": PATIENCE, "trust_env": False, "verify": False}
WAIT = Command([["wait"]], [])


class Pair:
    """Two servers on one store. The second keeps records for a second only."""

    def __init__(self, store: str, folder: Path) -> None:
        same = ("--store", store, "--folder", str(folder))
        self.gateway = Gateway(folder / BOOK)
        self.servers = [
            ServerProcess(*same, module=SERVICE),
            ServerProcess(*same, "--ttl", "1s", module=SERVICE),
        ]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    @property
    def charged(self) -> int:
        return len(self.gateway.charges())

    async def crowd(self, path: str, **request: Any) -> list["asyncio.Task[httpx.Response]"]:
        """As many equal requests at once, half of them to each server."""
        self.client = httpx.AsyncClient(limits=httpx.Limits(), **LOOPBACK)
        return [
            asyncio.ensure_future(self.client.post(f"{self.urls[n % 2]}{path}", **request))
            for n in range(CROWD)
        ]


@pytest.fixture(scope="module")
def monkeyenv():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "error")
        yield patch


@pytest.fixture(scope="module", params=["sqlite", "redis", "postgres"])
def pair(request, tmp_path_factory, monkeyenv):
    folder = tmp_path_factory.mktemp("http")
    if request.param == "sqlite":
        store = f"sqlite:///{folder}/records.db"
    elif request.param == "redis":
        store = request.getfixturevalue("redis_server").url
        with request.getfixturevalue("redis_server").client() as client:
            client.flushall()
    else:
        store = request.getfixturevalue("postgres").new_database()
    pair = Pair(store, folder)
    yield pair
    assert [server.stop() for server in pair.servers] == [0, 0]


# The six cases, as a reader types them


def test_the_page_shows_the_commands_that_the_demonstration_prints():
    printed = [command for case in CASES[:6] for command in serving.commands(case, BASE)]
    shown = PAGE.read_text("utf-8")
    assert [command for command in printed if f"$ {command}\n" not in shown] == []
    assert len(commands(PAGE)) == len(printed)


@pytest.mark.row("P1", "P2", "P3", "P4", "P5", "P6", "P14")
def test_the_six_cases_answer_as_the_page_says(pair):
    seen: set[str] = set()
    after_sleep, before = False, pair.charged
    shown = commands(PAGE)
    for command, following in pairwise([*shown, WAIT]):
        if command.sleeps:
            after_sleep = True
            continue
        # A retry goes to the other server. Where the page waits, the second one remembers for
        # a second only.
        second = following.sleeps or key_of(command) in seen
        seen.add(key_of(command))
        if after_sleep:
            until_it_has_expired(command, pair.urls[1])
        else:
            answers = send_all(command, pair.urls[::-1] if second else pair.urls)
            assert answers == in_order(command.answers), command.text
        after_sleep = False
    assert pair.charged == before + 6


def key_of(command: Command) -> str:
    return command.text.split('"idempotencyKey": "')[1].split('"')[0]


def until_it_has_expired(command: Command, url: str) -> None:
    answers = until(lambda: [one for one in send_all(command, [url]) if not one.replayed])
    assert answers == command.answers


def test_without_curl_the_same_is_sent(pair, monkeypatch):
    (command, *_) = commands(PAGE)
    payment = [word.replace(key_of(command), "without-curl") for word in command.requests[0]]
    http_commands.send(payment, pair.urls[0])  # from here on it is a replay
    with_curl = http_commands.send(payment, pair.urls[0])
    monkeypatch.setattr(http_commands, "CURL", None)
    assert http_commands.send(payment, pair.urls[1]) == with_curl


# A crowd


@pytest.mark.row("P2", "P4")
async def test_a_hundred_payments_at_once_are_one_charge_and_a_hundred_equal_answers(pair):
    before = pair.charged
    body = {"userId": "u9", "amount": 103, "currency": "USD", "idempotencyKey": "idem_crowd"}
    answers = await asyncio.gather(*await pair.crowd("/payments", json=body))
    await pair.client.aclose()
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == CROWD - 1
    assert pair.charged == before + 1


async def test_of_a_hundred_orders_at_once_one_runs_and_the_rest_is_told_to_come_back(pair):
    request = {"json": {"item": "tea"}, "headers": {"idempotency-key": "order-17"}}
    asked = await pair.crowd("/orders", **request)
    waiting = set(asked)
    while len(waiting) > 1:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    refused = [one.result() for one in asked if one not in waiting]
    assert {answer.status_code for answer in refused} == {409}
    assert {answer.json()["type"] for answer in refused} == {"urn:oncekey:in-progress"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    for url in pair.urls:
        await pair.client.post(f"{url}/open")
    answers = await asyncio.gather(*asked)
    await pair.client.aclose()
    (ran,) = [answer for answer in answers if answer.status_code != 409]
    assert (ran.status_code, ran.json()) == (201, {"order": "tea"})


# A kill


@pytest.mark.row("P13")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_server_killed_between_charge_and_answer_does_not_charge_again(
    kind, tmp_path, request, monkeyenv
):
    store = f"sqlite:///{tmp_path}/records.db"
    if kind == "redis":
        store = request.getfixturevalue("empty_redis").url
    arguments = ("--store", store, "--folder", str(tmp_path), "--lease", "1s", "--time-out", "60")
    gateway = Gateway(tmp_path / BOOK)
    ask = payment(130, "idem_ffff6666")
    doomed = ServerProcess(*arguments)
    with ThreadPoolExecutor(1) as pool, client_of(doomed) as client:
        asked = pool.submit(send, client, ask)
        until(gateway.charges)
        assert doomed.kill() == -signal.SIGKILL
        assert asked.result().status == 0
    doomed.stop()
    with ServerProcess(*arguments) as server, client_of(server) as client:
        again, once_more = send(client, ask), send(client, ask)
        assert again.status == 200
        assert again.value["paymentId"] == "pay_000001"
        assert once_more.body == again.body
    assert len(gateway.charges()) == 1


def client_of(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.url, **LOOPBACK)
