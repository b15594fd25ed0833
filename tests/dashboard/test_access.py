"""Nobody looks or acts without the token, or without the word of the application."""

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount

from oncekey import ConfigurationError, Once
from oncekey.dashboard import Dashboard
from oncekey.dashboard.access import LASTING, TICKET_LASTING, Sessions, Tickets
from oncekey.dashboard.app import _PAGES
from oncekey.inspection.listing import read_audit
from oncekey.stores import AsyncRedisStore
from tests.dashboard.conftest import TOKEN, hidden, hold

AT = "at=k-1"


@pytest.fixture
def app(memory, dashboard):
    memory.run("k-1", lambda: "a secret result")
    return dashboard(memory, show_results=True)


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in _PAGES])
async def test_every_page_is_refused_without_the_token(app, browse, method, path):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "oncekey_1=x.1.y"}):
        response = await browse(app).request(method, f"{path}?{AT}", headers=headers)
        assert response.status_code == 401
        assert "k-1" not in response.text.replace("at=k-1", "")
        assert "secret" not in response.text


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/static/app.py", "/logout"])
async def test_other_addresses_tell_nothing(app, browse, path):
    response = await browse(app).get(path)
    assert response.status_code in (404, 405)
    assert "secret" not in response.text


async def test_the_token_is_shown_once_and_a_cookie_is_kept(app, browse):
    browser = browse(app)
    response = await browser.post("/login", data={"token": TOKEN, "back": f"/record?{AT}"})
    assert response.status_code == 303
    assert response.headers["location"] == f"/record?{AT}"
    cookie = response.headers["set-cookie"]
    assert TOKEN not in cookie
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert "Secure" not in cookie
    assert "a secret result" in (await browser.get(f"/record?{AT}")).text


async def test_over_https_the_cookie_is_never_sent_in_clear(app, browse):
    response = await browse(app, "https://localhost").post("/login", data={"token": TOKEN})
    assert "; Secure" in response.headers["set-cookie"]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN} ", "ü" * 20, "\x00"])
async def test_another_token_is_refused(app, browse, token):
    browser = browse(app)
    response = await browser.post("/login", data={"token": token})
    assert response.status_code == 401
    assert "That is not the token" in response.text
    assert not browser.cookies


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/enter?x", ""]
)
async def test_nobody_is_led_elsewhere(app, browse, back):
    response = await browse(app).post("/login", data={"token": TOKEN, "back": back})
    assert response.headers["location"] == "/"


async def test_a_program_sends_the_token_itself(app, browse):
    response = await browse(app).get("/", headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 200
    assert 'data-text="total">1<' in response.text


async def test_a_ticket_works_once(app, browse):
    first, second = browse(app), browse(app)
    ticket = app.ticket()
    guess = await first.get(f"/enter?ticket={ticket}", headers={"Sec-Purpose": "prefetch"})
    assert guess.status_code == 503
    assert not first.cookies
    response = await first.get(f"/enter?ticket={ticket}")
    assert response.status_code == 303
    assert response.headers["location"] == "/"
    assert (await first.get("/")).status_code == 200
    again = await second.get(f"/enter?ticket={ticket}")
    assert again.status_code == 401
    assert "has been used" in again.text
    assert not second.cookies


@pytest.mark.parametrize("query", ["", "?ticket=", "?ticket=x", "?ticket=%00"])
async def test_no_other_word_is_a_ticket(app, browse, query):
    assert (await browse(app).get(f"/enter{query}")).status_code == 401


def test_a_ticket_is_good_for_a_while():
    clock = [0.0]
    tickets = Tickets(lambda: clock[0])
    late, early = tickets.issue(), tickets.issue()
    clock[0] = TICKET_LASTING - 1
    assert tickets.spend(early) == ""
    clock[0] = TICKET_LASTING
    assert tickets.spend(late) is None
    tickets.issue()
    late = tickets.issue()
    clock[0] += TICKET_LASTING
    tickets.issue()
    assert len(tickets._until) == 1  # nobody has to spend those that are too old


def test_a_forked_child_does_not_take_the_tickets_of_its_parent():
    tickets = Tickets()
    ticket = tickets.issue()
    tickets.after_fork()
    assert tickets.spend(ticket) is None


def test_a_session_ends():
    clock = [1000.0]
    sessions = Sessions(TOKEN, lambda: clock[0])
    value = sessions.begun()
    clock[0] += LASTING - 1
    assert sessions.read(value)
    clock[0] += 1
    assert sessions.read(value) is None


def test_a_session_belongs_to_its_token():
    sessions = Sessions(TOKEN)
    value = sessions.begun()
    assert Sessions(TOKEN).read(value) is not None
    assert Sessions("another token").read(value) is None
    assert Sessions("another token").cookie != sessions.cookie


@pytest.mark.parametrize("place", [0, 5, -5])
def test_a_changed_cookie_is_nobody(place):
    sessions = Sessions(TOKEN)
    value = list(sessions.begun())
    value[place] = "A" if value[place] != "A" else "B"
    assert sessions.read("".join(value)) is None


@pytest.mark.parametrize("value", ["", ".", "..", "a.b.c", "a", "\xff.1.x"])
def test_what_is_no_cookie_is_nobody(value):
    assert Sessions(TOKEN).read(value) is None


async def test_whoever_logs_out_is_out(app, inside):
    browser = await inside(app)
    kept = dict(browser.cookies)
    text = (await browser.get("/")).text
    response = await browser.post("/logout", data=hidden(text))
    assert response.status_code == 303
    assert not browser.cookies
    assert (await browser.get("/")).status_code == 401
    browser.cookies.update(kept)  # somebody has copied the cookie
    assert (await browser.get("/")).status_code == 401


async def test_a_session_that_has_ended_has_ended_in_other_processes_too(
    memory, dashboard, inside, browse
):
    one, other = dashboard(memory), dashboard(memory)
    browser = await inside(one)
    elsewhere, late = browse(other), browse(dashboard(memory))
    elsewhere.cookies.update(browser.cookies)
    late.cookies.update(browser.cookies)
    assert (await elsewhere.get("/")).status_code == 200
    await browser.post("/logout", data=hidden((await browser.get("/")).text))
    assert (await late.get("/")).status_code == 401
    other._site.access.ended._looked.clear()  # some seconds later
    assert (await elsewhere.get("/")).status_code == 401


async def test_sessions_are_listed_and_ended(app, browse):
    ann, bob = browse(app), browse(app)
    await ann.post("/login", data={"token": TOKEN, "name": "ann"})
    await bob.post("/login", data={"token": TOKEN, "name": "bob"})
    assert (await bob.get("/")).status_code == 200
    text = (await ann.get("/sessions")).text
    assert "This browser" in text
    assert all(name in text for name in ("ann", "bob", "127.0.0.1"))
    assert all(cookie.split(".")[0] not in text for cookie in bob.cookies.values())
    assert (await ann.post("/sessions/end", data=hidden(text))).status_code == 303
    assert (await bob.get("/")).status_code == 401
    assert (await ann.get("/")).status_code == 200
    assert "bob" not in (await ann.get("/sessions")).text


async def test_wrong_tokens_are_logged_and_slowed_down(app, browse, caplog):
    clock = [100.0]
    app._site.access.guesses._clock = lambda: clock[0]
    browser = browse(app)
    for _ in range(5):
        assert (await browser.post("/login", data={"token": "wrong"})).status_code == 401
    assert "wrong token for the dashboard from 127.0.0.1, 5 in a row" in caplog.text
    refused = await browser.post("/login", data={"token": TOKEN})  # not even looked at
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "Too many wrong tokens" in refused.text
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert (await browser.get("/", headers=bearer)).status_code == 401
    clock[0] += 1.1
    for _ in range(9):
        assert (await browser.post("/login", data={"token": "wrong"})).status_code == 401
        clock[0] += 60
    assert (await browser.post("/login", data={"token": TOKEN})).status_code == 303
    assert (await browse(app).post("/login", data={"token": TOKEN})).status_code == 303
    assert "wrong\n" not in caplog.text


async def test_the_link_opened_again_by_whoever_is_in_just_works(app, browse):
    browser, other = browse(app), browse(app)
    link = f"/enter?ticket={app.ticket('ann')}"
    assert (await browser.get(link)).status_code == 303
    again = await browser.get(link)
    assert (again.status_code, again.headers["location"]) == (303, "/")
    assert "ann" in (await browser.get("/sessions")).text
    assert (await other.get(link)).status_code == 401


async def test_what_is_done_on_the_page_is_written_down_with_the_user(memory, dashboard, browse):
    app = dashboard(memory)
    browser = browse(app)
    await browser.post("/login", data={"token": TOKEN, "name": "ann"})
    hold(memory, "k-9")
    assert "Nobody has resolved" in (await browser.get("/audit")).text
    form = hidden((await browser.get("/record?at=k-9")).text.split("Forget it")[0])
    said = {**form, "ending": "retry", "confirmed": "yes", "reason": "the bank says no"}
    assert (await browser.post("/record/resolve", data=said)).status_code == 303
    (entry,) = read_audit(memory.store, 10)
    assert (entry.by, entry.reason, entry.action) == ("ann", "the bank says no", "retry")
    text = (await browser.get("/audit")).text
    assert "freed to run again by ann: the bank says no" in text
    assert "Freed to run again by ann" in (await browser.get("/record?at=k-9")).text


async def test_a_link_on_another_site_is_asked_for_again_by_our_own_page(app, browse):
    refresh = 'http-equiv="refresh"'
    there = await browse(app).get("/", headers={"Sec-Fetch-Site": "cross-site"})
    assert there.status_code == 401
    assert refresh in there.text
    for site in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert refresh not in (await browse(app).get("/", headers=site)).text


# The application's own word


def says(answer):
    return lambda _: answer


async def awaited(request):
    return request.headers.get("x-user") == "ann"


async def test_the_application_may_say_who(memory, browse):
    app = Dashboard(memory, auth=awaited)
    assert (await browse(app).get("/")).status_code == 403
    assert (await browse(app).get("/", headers={"X-User": "bob"})).status_code == 403
    assert (await browse(app).get("/", headers={"X-User": "ann"})).status_code == 200


@pytest.mark.parametrize("answer", [False, None, 1, "yes", object()])
async def test_only_true_is_a_yes(memory, browse, answer):
    response = await browse(Dashboard(memory, auth=says(answer))).get("/")
    assert response.status_code == 403
    assert "does not let you in" in response.text


async def test_the_application_says_who_it_is_and_forms_are_signed(memory, browse):
    user, secret = says("ann"), "a secret that nobody guesses"
    app = Dashboard(memory, auth=says(True), user=user, secret=secret)
    memory.run("k-1", lambda: 1)
    browser = browse(app)
    form = await browser.form("/record/forget?at=k-1")
    forged = {**form, "form": Sessions("").form(next(iter(browser.cookies.values())))}
    assert (await browser.post("/record/forget", data=forged)).status_code == 403
    same = browse(Dashboard(memory, auth=says(True), user=user, secret=secret))
    same.cookies.update(browser.cookies)
    assert (await same.post("/record/forget", data=form)).status_code == 303
    (entry,) = read_audit(memory.store, 10)
    assert (entry.by, entry.action) == ("ann", "forget")


async def test_without_a_secret_each_process_signs_for_itself(memory, browse):
    memory.run("k-1", lambda: 1)
    one, other = (
        browse(Dashboard(memory, auth=says(True))),
        browse(Dashboard(memory, auth=says(True))),
    )
    form = await one.form("/record/forget?at=k-1")
    other.cookies.update(one.cookies)
    refused = await other.post("/record/forget", data=form)
    assert refused.status_code == 403
    assert "give them one secret=" in refused.text


@pytest.mark.parametrize(
    "wrong", [{"token": TOKEN, "secret": "x" * 20}, {"auth": says(True), "secret": "short"}]
)
def test_a_secret_belongs_to_auth_and_is_one(memory, wrong):
    with pytest.raises(ConfigurationError):
        Dashboard(memory, **wrong)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_no_may_be_raised(memory, browse, status):
    def refuse(_):
        raise HTTPException(status)

    response = await browse(Dashboard(memory, auth=refuse)).get("/")
    assert response.status_code == 403
    assert "does not let you in" in response.text


async def test_where_the_application_decides_no_token_is_asked_for(memory, browse):
    app = Dashboard(memory, auth=says(True))
    browser = browse(app)
    text = (await browser.get("/")).text
    assert "Log out" not in text
    assert (await browser.post("/login", data={"token": "x"})).status_code == 404
    assert (await browser.get("/enter?ticket=x")).status_code == 404
    with pytest.raises(ConfigurationError, match="auth"):
        app.ticket()


async def test_under_a_path_of_the_application(app, browse):
    browser = browse(Starlette(routes=[Mount("/ops/keys", app)]))
    assert 'action="/ops/keys/login"' in (await browser.get(f"/ops/keys/record?{AT}")).text
    response = await browser.post("/ops/keys/login", data={"token": TOKEN, "back": f"/record?{AT}"})
    assert response.headers["location"] == f"/ops/keys/record?{AT}"
    assert "Path=/ops/keys/" in response.headers["set-cookie"]
    page = await browser.get(response.headers["location"])
    assert page.status_code == 200
    assert 'href="/ops/keys/records"' in page.text
    assert (await browser.get("/ops/keys/static/dashboard.css")).status_code == 200


# How it is made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "token=... or auth=..."),
        ({"token": TOKEN, "auth": says(True)}, "exactly one"),
        ({"token": ""}, "at least 16"),
        ({"token": "short"}, "at least 16"),
        ({"token": b"x" * 20}, "at least 16"),
        ({"auth": "ann"}, "auth must be a callable"),
        ({"token": TOKEN, "allowed_hosts": "example.com"}, "a list of names"),
        ({"token": TOKEN, "allowed_hosts": []}, "a list of names"),
        ({"token": TOKEN, "show_results": "yes"}, "show_results"),
    ],
)
def test_a_dashboard_that_would_be_open_or_broken_is_not_made(memory, options, words):
    with pytest.raises(ConfigurationError, match=words):
        Dashboard(memory, **options)


def test_a_dashboard_shows_a_once():
    with pytest.raises(ConfigurationError, match="not of 'redis"):
        Dashboard("redis://localhost", token=TOKEN)


def test_an_async_store_is_refused_with_what_to_do():
    once = Once(AsyncRedisStore.from_url("redis://127.0.0.1:1/0"))
    with pytest.raises(ConfigurationError, match="a Once of its own"):
        Dashboard(once, token=TOKEN)


async def test_metrics_are_for_those_who_have_the_token(app, browse):
    assert (await browse(app).get("/metrics")).status_code == 401
    response = await browse(app).get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "\noncekey_held_records 0\n" in response.text
