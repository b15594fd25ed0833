"""Who may only look changes nothing: the server refuses it, whatever the page shows."""

import pytest

from oncekey import ConfigurationError
from oncekey.dashboard import Dashboard
from oncekey.dashboard.access import Sessions
from oncekey.dashboard.app import _PAGES
from oncekey.inspection.listing import read_audit
from tests.dashboard.conftest import TOKEN, hidden, hold

VIEW_TOKEN = "a token that lets people look"  # noqa: S105 - it opens nothing
POSTS = [path for method, path, _ in _PAGES if method == "POST"]
FORMS = (
    ("/record/forget", {"at": "held", "force": "yes"}),
    ("/record/resolve", {"at": "held", "ending": "retry", "confirmed": "yes"}),
    ("/records/change", {"pick:held": "yes", "how": "retry", "confirmed": "1"}),
)


@pytest.fixture
def held(memory):
    hold(memory, "held")
    return memory


async def by_view_token(once, browse):
    browser = browse(Dashboard(once, token=TOKEN, view_token=VIEW_TOKEN))
    assert (await browser.post("/login", data={"token": VIEW_TOKEN})).status_code == 303
    return browser


async def by_auth(once, browse):
    async def may_change(request):
        return request.headers.get("x-team") == "payments"

    return browse(Dashboard(once, auth=lambda _: True, may_change=may_change))


async def by_setting(once, browse):
    app = Dashboard(once, token=TOKEN, read_only=True)
    browser = browse(app)
    assert (await browser.get(f"/enter?ticket={app.ticket('ann')}")).status_code == 303
    return browser


async def by_setting_with_auth(once, browse):
    return browse(Dashboard(once, auth=lambda _: True, read_only=True))


@pytest.mark.parametrize("way", [by_view_token, by_auth, by_setting, by_setting_with_auth])
async def test_a_viewer_sees_everything_and_changes_nothing(held, browse, way):
    browser = await way(held, browse)
    for page in ("/", "/records", "/record?at=held", "/labels", "/audit", "/doctor"):
        response = await browser.get(page)
        assert response.status_code == 200, page
        assert "read only" in response.text
        assert "held" in response.text
        for word in ("Forget", "Say how it ended", "Continue"):
            assert word not in response.text, page
    # The proof of the session is a good one: it is in the form that logs out, or can be asked for.
    proof = hidden((await browser.get("/records")).text)["form"]
    seen = {"seen": "anything", "form": proof}
    for path, form in FORMS:
        response = await browser.post(path, data=form | seen)
        assert response.status_code == 403, path
        assert "not change anything" in response.text
    assert {path for path, _ in FORMS} | {"/dead-letters/free", "/outbox/decide"} == set(POSTS)
    assert (await browser.get("/record/forget?at=held")).status_code == 403
    assert held.get("held").status == "held"
    assert read_audit(held.store, 10) == []


async def test_a_viewer_may_leave_but_not_end_the_sessions_of_others(held, browse):
    browser = await by_view_token(held, browse)
    form = hidden((await browser.get("/")).text)
    assert (await browser.get("/sessions")).status_code == 403
    ended = await browser.post("/sessions/end", data=form | {"session": "x"})
    assert ended.status_code == 403
    assert (await browser.post("/logout", data=form)).status_code == 303
    assert (await browser.get("/")).status_code == 401


async def test_an_operator_beside_viewers_changes_records(held, browse):
    app = Dashboard(held, token=TOKEN, view_token=VIEW_TOKEN)
    browser = browse(app)
    await browser.post("/login", data={"token": TOKEN})
    form = await browser.form("/record?at=held")
    said = form | {"ending": "retry", "confirmed": "yes"}
    assert (await browser.post("/record/resolve", data=said)).status_code == 303
    assert held.get("held").status == "released"


async def test_whom_the_application_trusts_changes_records(held, browse):
    browser = await by_auth(held, browse)
    browser.headers["x-team"] = "payments"
    form = await browser.form("/record?at=held")
    said = form | {"ending": "retry", "confirmed": "yes"}
    assert (await browser.post("/record/resolve", data=said)).status_code == 303
    assert held.get("held").status == "released"


async def test_nobody_makes_himself_an_operator(held, browse):
    browser = await by_view_token(held, browse)
    name = Sessions(TOKEN).cookie
    value = browser.cookies[name]
    assert value.count(".viewer.") == 1
    for other in (
        value.replace(".viewer.", ".operator."),
        Sessions(VIEW_TOKEN).begun("eve", "operator"),
        value[: value.index(".viewer.")],
    ):
        browser.cookies.clear()
        browser.cookies.set(name, other, domain="127.0.0.1")
        assert (await browser.get("/")).status_code == 401


async def test_a_program_with_the_view_token_looks(held, browse):
    browser = browse(Dashboard(held, token=TOKEN, view_token=VIEW_TOKEN))
    sent = {"Authorization": f"Bearer {VIEW_TOKEN}"}
    assert (await browser.get("/metrics", headers=sent)).status_code == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token": TOKEN, "view_token": TOKEN}, "must differ"),
        ({"token": TOKEN, "view_token": "short"}, "at least 16"),
        ({"token": TOKEN, "may_change": lambda _: True}, "belongs to auth="),
        ({"auth": lambda _: True, "view_token": VIEW_TOKEN}, "belongs to token="),
        ({"auth": lambda _: True, "may_change": "yes"}, "may_change must be a callable"),
        ({"token": TOKEN, "read_only": "yes"}, "read_only must be True or False"),
    ],
)
def test_what_does_not_fit_together_is_refused(memory, options, words):
    with pytest.raises(ConfigurationError, match=words):
        Dashboard(memory, **options)
