"""The programs of the page about other frameworks do what the page says, behind a real server."""

import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.outside.environment import ROOT
from tests.patience import PATIENCE
from tests.system.http import environment
from tests.system.http.serving import served

pytestmark = pytest.mark.xdist_group("http")  # one process makes the environment

PAGE = (ROOT / "docs" / "http-frameworks.md").read_text("utf-8")
PROGRAMS = dict(re.findall(r"^## (\w+)\n.*?^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
ROUTES = ("/orders", "/refunds")


def test_the_page_has_a_program_for_each():
    assert PROGRAMS.keys() == {"Litestar", "Quart", "Falcon", "Sanic"}


@pytest.fixture(scope="module", params=PROGRAMS)
def shop(request, tmp_path_factory):
    """A client of the program."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(PROGRAMS[request.param], "utf-8")
    python = environment.prepare()
    with (
        served("shop:app", folder, "--app-dir", str(folder), python=python) as address,
        httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield client


def post(shop, route, key, item="tea", user="ann"):
    headers = {"Authorization": f"Bearer {user}", "X-User": user}
    if key is not None:
        headers["Idempotency-Key"] = key
    return shop.post(route, json={"item": item}, headers=headers)


@pytest.mark.parametrize("route", ROUTES)
def test_a_repeat_gets_the_first_answer(shop, route):
    first, again = (post(shop, route, "twice") for _ in range(2))
    assert first.status_code == 201, first.text
    assert "idempotent-replayed" not in first.headers
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("route", ROUTES)
def test_another_request_under_the_key_is_refused(shop, route):
    post(shop, route, "other")
    refused = post(shop, route, "other", item="gin")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:oncekey:key-reused")


@pytest.mark.parametrize("route", ROUTES)
def test_another_user_has_keys_of_their_own(shop, route):
    mine, theirs = (post(shop, route, "users", user=user) for user in ("ann", "bob"))
    assert mine.json() != theirs.json()


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_key_each_request_runs(shop, route):
    assert post(shop, route, None).json() != post(shop, route, None).json()


@pytest.mark.parametrize("route", ROUTES)
def test_of_many_at_once_one_runs(shop, route):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: post(shop, route, "many"), range(8)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
