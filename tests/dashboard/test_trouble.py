"""A store that does not answer, and records that this release does not understand."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis

from oncekey import Once
from oncekey.dashboard.errors import status_of
from oncekey.errors import InProgressError, InvalidKeyError, KeyReusedError
from tests.dashboard.conftest import HOLDING, hidden

PAGES = (
    "/",
    "/records",
    "/records?status=held",
    "/record?at=k-1",
    "/record/forget?at=k-1",
)
NOWHERE = {
    "redis": "redis://:hunter2@127.0.0.1:1/0",
    "postgres": "postgresql://ann:hunter2@127.0.0.1:1/x?connect_timeout=2",
    "sqlite": "sqlite:///{folder}/nothing/here.db",
}


@pytest.mark.parametrize("kind", NOWHERE)
async def test_a_store_that_does_not_answer_is_a_page_with_the_reason(
    kind, dashboard, inside, tmp_path
):
    once = Once(NOWHERE[kind].format(folder=tmp_path), observers=(), policy=HOLDING)
    browser = await inside(dashboard(once))
    of_the_doctor = ("/doctor",) if kind != "sqlite" else ()  # a file has no server to ask
    for page in (*PAGES, *of_the_doctor):
        response = await browser.get(page)
        assert response.status_code == 503, page
        assert "The store does not answer" in response.text
        assert "127.0.0.1:1" in response.text or "here.db" in response.text
        assert "Traceback" not in response.text
        assert "hunter2" not in response.text
    once.close()


async def test_a_store_that_comes_back_is_shown_again(another_file, dashboard, inside):
    once = Once(f"sqlite:///{another_file}", observers=(), policy=HOLDING)
    browser = await inside(dashboard(once))
    assert (await browser.get("/records")).status_code == 503
    another_file.parent.mkdir()
    assert (await browser.get("/records")).status_code == 200
    once.close()


@pytest.fixture
def another_file(tmp_path: Path) -> Path:
    return tmp_path / "later" / "records.db"


async def test_an_action_on_a_store_that_has_gone_says_so(another_redis, dashboard, inside):
    server = another_redis()
    once = Once(server.url, observers=(), policy=HOLDING)
    once.run("k-1", lambda: 1)
    browser = await inside(dashboard(once))
    asked = await browser.get("/record/forget?at=k-1")
    server.stop()
    response = await browser.post("/record/forget", data=hidden(asked.text))
    assert response.status_code == 503
    once.close()


def newer(store_url: str) -> None:
    """The record of k-1 is now one that a newer release has written."""
    change = "UPDATE oncekey_records SET version = 99"
    if store_url.startswith("sqlite"):
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as file, file:
            file.execute(change)
    elif store_url.startswith("postgres"):
        with psycopg.connect(store_url) as connection:
            connection.execute(change)
    else:
        with redis.Redis.from_url(store_url) as client:
            client.setrange("idempotency:k-1", 4, b"\x63")  # its format


async def test_a_record_of_a_newer_release_is_shown_as_far_as_it_is_understood(
    once, store_url, dashboard, inside
):
    once.options(label="charge").run("k-1", lambda: 1)
    newer(store_url)
    browser = await inside(dashboard(once))
    form = await browser.form("/record/forget?at=k-1")
    assert (await browser.post("/record/forget", data=form)).status_code == 409
    page = await browser.get("/record?at=k-1")
    assert page.status_code == 200
    assert "A newer release wrote it" in page.text
    assert "charge" in page.text
    assert "Forget it" not in page.text
    listed = await browser.get("/records")
    assert listed.status_code == 200
    assert "k-1" in listed.text


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidKeyError("no"), 400), (InProgressError("no"), 409), (KeyReusedError("no"), 500)],
)
def test_every_error_has_a_status(error, status):
    assert status_of(error) == status
