"""No action without a form that this dashboard made for this browser."""

import pytest

from oncekey.dashboard import Dashboard
from oncekey.dashboard.site import LARGEST
from tests.dashboard.conftest import HERE, TOKEN, hidden

PAGE = "/record/forget?at=k-1"
ACTION = "/record/forget"


@pytest.fixture
def app(memory, dashboard):
    memory.run("k-1", lambda: "kept")
    return dashboard(memory)


@pytest.fixture(params=["token", "auth"])
async def browser(request, memory, app, inside, browse):
    if request.param == "token":
        return await inside(app)
    return browse(Dashboard(memory, auth=lambda _: True))


async def test_a_form_of_ours_works(memory, browser):
    assert (await browser.post(ACTION, data=await browser.form(PAGE))).status_code == 303
    assert memory.get("k-1") is None


@pytest.mark.parametrize("proof", [None, "", "x", "0" * 64])
@pytest.mark.parametrize("action", [ACTION, "/record/resolve"])
async def test_a_form_without_proof_does_nothing(memory, browser, proof, action):
    data = await browser.form(PAGE)
    del data["form"]
    data |= {} if proof is None else {"form": proof}
    response = await browser.post(action, data=data)
    assert response.status_code == 403
    assert "Nothing was changed" in response.text
    assert memory.get("k-1") is not None


async def test_the_form_of_another_session_does_nothing(memory, app, inside):
    ann, bob = await inside(app), await inside(app)
    response = await ann.post(ACTION, data=await bob.form(PAGE))
    assert response.status_code == 403
    assert memory.get("k-1") is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_a_form_that_another_page_sends_does_nothing(memory, browser, headers):
    data = await browser.form(PAGE)
    response = await browser.post(ACTION, data=data, headers=headers)
    assert response.status_code == 403
    assert memory.get("k-1") is not None
    login = await browser.post("/login", data={"token": "x"}, headers=headers)
    assert login.status_code in (403, 404)


@pytest.mark.parametrize("headers", [{"Origin": HERE}, {"Sec-Fetch-Site": "same-origin"}])
async def test_a_form_that_our_page_sends_works(browser, headers):
    data = await browser.form(PAGE)
    assert (await browser.post(ACTION, data=data, headers=headers)).status_code == 303


async def test_the_token_without_a_session_may_look_and_not_act(memory, app, browse):
    browser = browse(app)
    browser.headers["Authorization"] = f"Bearer {TOKEN}"
    data = await browser.form(PAGE)
    assert (await browser.post(ACTION, data=data)).status_code == 403
    assert memory.get("k-1") is not None


async def test_where_the_application_decides_the_cookie_is_ours_alone(memory, browse):
    browser = browse(Dashboard(memory, auth=lambda _: True))
    cookie = (await browser.get("/")).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "set-cookie" not in (await browser.get("/")).headers


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"a=1", "text/plain", 415),
        (b"a=1", "multipart/form-data; boundary=x", 415),
        (b"{}", "application/json", 415),
        (b"a=" + b"x" * LARGEST, "application/x-www-form-urlencoded", 413),
        (b"\xff=1", "application/x-www-form-urlencoded", 400),
        (b"&".join([b"a=1"] * 260), "application/x-www-form-urlencoded", 400),
    ],
)
async def test_what_is_no_form_is_refused(app, inside, content, kind, status):
    browser = await inside(app)
    for action in (ACTION, "/login"):
        response = await browser.post(action, content=content, headers={"Content-Type": kind})
        assert response.status_code == status


async def test_a_form_is_not_made_for_whoever_was_refused(app, browse):
    assert "form" not in hidden((await browse(app).get("/")).text)
