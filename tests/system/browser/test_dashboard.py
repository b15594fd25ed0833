"""The dashboard in a real browser: what a person on call does with it, and what others cannot."""

import re
import sqlite3
import threading
from contextlib import closing
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from oncekey import Once, StoreError
from oncekey.dashboard import Dashboard, queries
from oncekey.messages import Inbox, Message
from oncekey.outbox import Outbox, Relay
from oncekey.stores import SQLiteStore
from tests.dashboard.conftest import HOLDING, TOKEN, hold
from tests.dashboard.server import serving
from tests.heavy import HEAVY

pytestmark = pytest.mark.xdist_group("browser")

PAID = Message(id="m-7", type="paid", body=b"{}")
NASTY = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>{{7*7}}"
LETTER = "/outbox/letter?id=o-7"
PAGES = (
    "/",
    "/records",
    "/records?status=held",
    "/record?at=billing/charge:9",
    "/record?at=billing/charge:1",
    "/record/forget?at=billing/charge:9",
    "/doctor",
    "/?over=week",
    "/records?sort=-key",
    "/labels",
    "/dead-letters",
    "/outbox",
    LETTER,
    "/outbox/letter?id=o-7",
    "/audit",
    "/sessions",
)
CONTRAST = """
(selector) => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((one) => {
      const part = one / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      const found = numbers(colour);
      if (found.length < 4 || found[3] > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll(selector)].map((element) => {
    const both = [light(getComputedStyle(element).color), light(behind(element))];
    const [low, high] = both.sort((a, b) => a - b);
    return [element.textContent.trim().slice(0, 40), (high + 0.05) / (low + 0.05)];
  });
}
"""


@pytest.fixture
def once(tmp_path):
    """A shop's records in a file."""
    made = Once(SQLiteStore(tmp_path / "shop.db", synchronous="NORMAL"), policy=HOLDING)
    billing = made.options(scope="billing", label="charge")
    for number in range(3):
        billing.run(f"charge:{number}", lambda: {"paid": True})
    made.options(label="report").run("report:1", lambda: None)
    hold(made, "charge:9", scope="billing")
    made.store.add_activity((12, 3, 1, 2), 0)
    made.store.add_activity((40, 9, 0, 0), 30 * 60_000_000)
    yield made
    made.close()


@pytest.fixture
def inbox(tmp_path):
    """The URL of an inbox with a dead letter."""
    url = f"sqlite:///{tmp_path / 'inbox.db'}"
    made = Inbox(url, "billing", max_attempts=1)
    with pytest.raises(ValueError, match="order 7"), made.leased(PAID):
        raise ValueError("order 7 is unknown")
    made.close()
    return url


@pytest.fixture
def outbox(tmp_path):
    """The URL of an outbox with a dead letter, and a message that waits behind it."""
    url = f"sqlite:///{tmp_path / 'outbox.db'}"
    made = Outbox(url)
    with closing(sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for name in ("o-7", "o-8"):
            message = Message(id=name, type="paid", body={"order": name})
            made.put(connection, message, to="orders.paid", key="customer-1")
        connection.execute("COMMIT")
    made.close()
    relay(url, refuse, max_tries=1)
    return url


def refuse(_):
    raise ValueError("no such tenant")


def relay(url, target, **options):
    """Sends what may be sent now."""

    def work():  # this thread has the loop of the browser
        made = Relay(url, target, **options)
        made.drain()
        made.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.fixture
def board(once, inbox, outbox):
    return Dashboard(
        once,
        token=TOKEN,
        view_token=f"{TOKEN} or look",
        show_results=True,
        inbox=inbox,
        outbox=outbox,
    )


@pytest.fixture
def site(board):
    with serving(board) as address:
        yield address


@pytest.fixture
def let_in(board, site):
    pages = []

    def let_in(page):
        page.goto(f"{site}/enter?ticket={board.ticket()}")
        expect(page).to_have_url(f"{site}/")
        pages.append(page)
        return page

    yield let_in
    for page in pages:
        page.goto("about:blank")  # it would go on asking when the site is gone


def shown_keys(page):
    return page.locator(".c-key").all_inner_texts()


def test_a_person_finds_a_held_record_and_says_how_it_ended(page, let_in, once, site):
    let_in(page)
    page.keyboard.press("/")
    expect(page).to_have_url(f"{site}/records")
    assert len(shown_keys(page)) == 5
    page.keyboard.press("/")
    page.keyboard.type("charge:")
    page.get_by_label("Status").select_option("held")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".c-key")).to_have_text(["billing/charge:9"])
    page.get_by_role("link", name="billing/charge:9").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("billing/charge:9")
    expect(page.get_by_text("the bank did not answer")).to_be_visible()
    page.get_by_label("It was done").check()
    page.get_by_label("Result, as JSON").fill('{"paid": true}')
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("It was done?")
    assert once.get("charge:9", scope="billing").status == "held"
    page.get_by_role("button", name="Yes, that is how it ended").click()
    expect(page.get_by_role("status")).to_contain_text("The record ended as you said")
    assert once.get("charge:9", scope="billing").value == {"paid": True}


def test_a_key_is_forgotten_after_a_question(page, let_in, once, site):
    let_in(page)
    page.goto(f"{site}/record?at=billing/charge:1")
    page.get_by_role("link", name="Forget").click()
    page.get_by_role("link", name="Leave it").click()
    assert once.get("charge:1", scope="billing") is not None
    page.get_by_role("link", name="Forget").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Forget this key?")
    page.get_by_role("button", name="Forget it").click()
    expect(page.locator(".notice")).to_contain_text("The key is forgotten")
    assert once.get("charge:1", scope="billing") is None


def test_keys_and_names_are_shown_letter_by_letter_as_they_are(page, once, site, complaints):
    """What is copied from a page is searched for: a capital letter would find nothing."""
    once.resolve("charge:9", scope="billing", retry=True, by="root@shop", reason="not in its list")
    hold(once, "charge:9", scope="billing")
    page.goto(f"{site}/audit")
    page.get_by_label("The token of this dashboard").fill(TOKEN)
    page.get_by_label("Your name, for the audit trail").fill("ann@shop")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Done by hand")
    row = page.locator(".rows li > span").first
    assert row.inner_text().startswith("billing/charge:9 freed to run again by root@shop")
    page.goto(f"{site}/sessions")
    assert page.locator(".rows li > span").first.inner_text().startswith("ann@shop from")
    page.goto(f"{site}/records?status=held")
    page.get_by_label("Choose billing/charge:9").check()
    page.get_by_label("What to do with them").select_option("retry")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Resolve 1 record?")
    assert page.locator(".rows li > span").first.inner_text() == "billing/charge:9"
    page.goto(f"{site}/doctor")
    assert page.locator(".rows li > span").first.inner_text()[0].isupper()
    assert all("401" in one for one in complaints)
    complaints.clear()


def test_what_is_stored_does_nothing_in_a_browser(page, let_in, once, site):
    key = "<img src=x onerror=alert(3)>\"'>"
    view = once.options(scope="</td><script>alert(4)</script>", label=NASTY, reference=NASTY)
    view.run(key, lambda: {NASTY: NASTY})
    with pytest.raises(TimeoutError), view.attempt(f"held {key}") as attempt:
        attempt.note(**{NASTY: NASTY})
        attempt.step(NASTY, str, NASTY)
        raise TimeoutError(NASTY)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    let_in(page)
    page.goto(f"{site}/records?label={quote(NASTY)}")
    links = page.locator(".c-key a").evaluate_all("all => all.map(a => a.href)")
    assert len(links) == 2
    forgets = [link.replace("/record?", "/record/forget?") for link in links]
    for link in (*links, *forgets, f"{site}/", f"{site}/records?status=held"):
        page.goto(link)
        assert "onerror=alert(" in page.locator("main").inner_text()
        assert page.locator("main img, main script, main [onerror]").count() == 0
    page.goto(f"{site}/records?key={quote(NASTY)}&scope={quote(NASTY)}&label={quote(NASTY)}")
    assert page.get_by_label("Key, or its beginning").input_value() == NASTY
    assert page.locator("main img, main script").count() == 0


def test_nothing_without_the_token(page, site, once, complaints):
    for path in PAGES:
        response = page.goto(f"{site}{path}")
        assert response.status == 401
        assert "charge" not in page.locator("main").inner_text()
    page.goto(f"{site}/")
    send = """
    async ([path, token]) => (await fetch(path, {
      method: "POST",
      headers: {"Content-Type": "application/x-www-form-urlencoded"},
      body: new URLSearchParams({at: "billing/charge:9", force: "yes", form: "x", token: token}),
    })).status
    """
    for action in ("/record/forget", "/record/resolve", "/logout", "/login"):
        assert page.evaluate(send, [action, "a wrong token"]) == 401
    assert once.get("charge:9", scope="billing").status == "held"
    assert all("401" in one for one in complaints)
    complaints.clear()


def test_the_token_lets_a_person_in_to_where_they_were_going(page, site, complaints):
    page.goto(f"{site}/record?at=billing/charge:9")
    page.get_by_label("The token of this dashboard").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.goto(f"{site}/record?at=billing/charge:9")
    page.get_by_label("The token of this dashboard").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("billing/charge:9")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Who is there?")
    assert all("401" in one for one in complaints)
    complaints.clear()


def test_a_link_on_another_site_leads_in_and_its_forms_do_not(page, let_in, site, once, complaints):
    let_in(page)
    form = page.request.get(f"{site}/record/forget?at=billing/charge:9").text()
    assert "charge:9" in form

    async def elsewhere(scope, receive, send):
        body = f"""<!doctype html><link rel=icon href=data:,><a href="{site}/records">look</a>
        <form method=post action="{site}/record/forget"><button>win</button></form>""".encode()
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with serving(elsewhere) as address:
        other = address.replace("127.0.0.1", "localhost")  # another site, as browsers see it
        page.goto(other)
        page.get_by_role("link", name="look").click()
        expect(page.locator(".c-key")).to_have_count(5)
        page.goto(other)
        page.get_by_role("button", name="win").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Who is there?")
    assert once.get("charge:9", scope="billing").status == "held"
    assert all("401" in one for one in complaints)
    complaints.clear()


def test_the_numbers_are_alive_until_somebody_pauses_them(page, let_in, once):
    once.run("again", lambda: 1)
    once.run("again", lambda: 1)
    let_in(page)
    saved = page.locator('[data-text="saved"]')
    expect(saved).to_have_text("1")
    assert page.locator(".spark path").count() == 3
    once.run("again", lambda: 1)
    once.run("another", lambda: 1)
    expect(saved).to_have_text("2")
    expect(page.locator('[data-text="status-completed"]')).to_have_text("6")
    expect(page.locator("[data-live-said]")).to_contain_text("2 duplicates saved")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-live-state]")).to_have_text("Paused")


def test_a_dashboard_that_has_gone_is_noticed(page, let_in, context, complaints):
    page.clock.install()
    let_in(page)
    context.set_offline(True)
    page.clock.run_for(2000)
    state = page.locator("[data-live-state]")
    expect(state).to_have_text(re.compile("The dashboard does not answer; shown as of 20.* UTC"))
    expect(page.locator("[data-live]")).to_have_class(re.compile("is-old"))
    context.set_offline(False)
    page.clock.run_for(2000)
    expect(state).to_have_text("Live")
    expect(page.locator("[data-live]")).not_to_have_class(re.compile("is-old"))
    complaints.clear()


def test_what_is_held_is_shown_at_once_in_the_number_and_in_the_list(page, let_in, once):
    once.forget("charge:9", scope="billing", force=True)
    let_in(page)
    expect(page.get_by_text("Nothing is held.")).to_be_visible()
    page.get_by_role("link", name="All records").focus()
    hold(once, "later")
    expect(page.locator(".rows a", has_text="later")).to_be_visible()
    expect(page.locator('[data-text="status-held"]')).to_have_text("1")
    expect(page.get_by_text("Nothing is held.")).not_to_be_visible()
    expect(page.get_by_role("link", name="All records")).to_be_focused()


def test_old_numbers_are_not_shown_as_if_they_were_true(
    page, let_in, once, complaints, monkeypatch
):
    page.clock.install()
    let_in(page)

    def refuse(*_, **__):
        raise StoreError("the store is away", happened=False)

    monkeypatch.setattr(queries, "count_records", refuse)
    state = page.locator("[data-live-state]")
    for _ in range(4):
        page.clock.run_for(2000)
    expect(state).to_have_text(re.compile("The store does not answer; shown as of 20.* UTC"))
    expect(page.locator("[data-live]")).to_have_class(re.compile("is-old"))
    expect(page.locator("[data-live]")).to_have_css("opacity", "0.45")
    complaints.clear()


def is_fetch(route):
    return route.request.resource_type == "fetch"


def test_charts_are_drawn_and_times_are_those_of_the_browser(new_context, let_in, site):
    context = new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    page = context.new_page()
    # Nothing is refreshed, which would mend the times too.
    page.route("**/*", lambda one: one.abort() if is_fetch(one) else one.continue_())
    let_in(page)
    new = page.get_by_role("img", name="New calls in the last hour: 52, at most 40 in a minute")
    assert new.locator("rect").count() == 2
    page.get_by_role("link", name="day").click()
    expect(
        page.get_by_role("img", name=re.compile("New calls in the last day: 52"))
    ).to_be_visible()
    moment = page.locator("[data-live-moment]")
    expect(moment).to_have_text(re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d (GMT\+5:30|IST)$"))
    expect(moment).to_have_attribute("title", re.compile("UTC$"))
    expect(page.locator("[data-zone]")).to_contain_text("Asia/")


def test_a_list_refreshes_itself_but_not_under_a_hand(page, let_in, once, site):
    page.clock.install()
    let_in(page)
    page.goto(f"{site}/records")
    once.run("first", lambda: 1)
    page.clock.run_for(5000)
    expect(page.locator(".c-key", has_text="first")).to_be_visible()
    page.get_by_label("Choose billing/charge:1").check()
    once.run("second", lambda: 1)
    page.clock.run_for(5000)
    expect(page.locator("[data-live-state]")).to_have_text("Waits while you choose")
    expect(page.get_by_label("Choose billing/charge:1")).to_be_checked()
    expect(page.locator(".c-key", has_text="second")).to_have_count(0)
    page.get_by_label("Choose billing/charge:1").uncheck()
    page.get_by_role("heading", level=1).click()
    page.clock.run_for(5000)
    expect(page.locator(".c-key", has_text="second")).to_be_visible()


def test_a_list_is_sorted_by_keyboard(page, let_in, site):
    let_in(page)
    page.goto(f"{site}/records?scope=billing")
    page.get_by_role("link", name="Key", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("columnheader", name="Key")).to_have_attribute("aria-sort", "ascending")
    assert shown_keys(page)[0] == "billing/charge:0"
    page.get_by_role("link", name="Key", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("columnheader", name="Key")).to_have_attribute(
        "aria-sort", "descending"
    )
    assert shown_keys(page)[0] == "billing/charge:9"


def test_a_viewer_finds_nothing_to_press(page, site, complaints):
    page.goto(site)
    page.get_by_label("The token of this dashboard").fill(f"{TOKEN} or look")
    page.keyboard.press("Enter")
    expect(page.get_by_text("read only")).to_be_visible()
    assert all("401" in one for one in complaints)
    complaints.clear()
    for path in ("/records", "/record?at=billing/charge:9", "/dead-letters", LETTER):
        page.goto(f"{site}{path}")
        assert page.locator("main form[method=post] button").count() == 0, path
        assert page.locator("main .danger").count() == 0, path


def test_a_dead_letter_is_freed(page, let_in, site):
    let_in(page)
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_text("order 7 is unknown")).to_be_visible()
    page.get_by_role("button", name="Free m-7").click()
    expect(page.locator(".notice")).to_contain_text("is processed when it is delivered")
    expect(page.locator(".c-status")).to_have_text("free")


def test_a_letter_of_the_outbox_is_edited_and_sent(page, let_in, site, outbox):
    let_in(page)
    page.get_by_role("link", name="Outbox").click()
    expect(page.get_by_text("ValueError: no such tenant")).to_be_visible()
    expect(page.get_by_text("may have arrived")).to_be_visible()
    page.get_by_role("link", name="orders.paid/o-7").click()
    page.get_by_label("Send another in its place").check()
    page.get_by_label("Body").fill('{"order": 7,\n"tenant": "a"}')
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("consumers get both")
    page.get_by_label("Why").fill("the tenant was missing")
    page.get_by_role("button", name="Send it").click()
    expect(page.locator(".notice")).to_contain_text("The edited message is sent in its place")
    expect(page.get_by_text("No message has failed for good")).to_be_visible()
    sent = []
    relay(outbox, sent.append)
    assert [one.body for one in sent] == [b'{"order": 7,\n"tenant": "a"}', b'{"order":"o-8"}']
    assert sent[0].id != "o-7"
    expect(page.get_by_text("Everything that was committed has been sent")).to_be_visible()
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_text("the tenant was missing")).to_be_visible()


def test_a_narrow_screen_shows_everything(new_context, let_in, site):
    page = let_in(new_context(viewport={"width": 390, "height": 844}).new_page())
    for path in PAGES:
        page.goto(f"{site}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        small = page.locator("main button, main .button").evaluate_all(
            "all => all.filter(one => one.checkVisibility() && one.offsetHeight < 32)"
            ".map(one => one.textContent)"
        )
        assert small == [], path
    page.goto(f"{site}/records")
    row = page.get_by_role("row").nth(1)
    assert row.evaluate("row => getComputedStyle(row).display") == "flex"
    assert page.get_by_role("table").count() == 1  # it still is one, for those who listen
    page.get_by_role("link", name="billing/charge:9").click()
    page.get_by_label("It failed for good").check()
    expect(page.get_by_label("What went wrong")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_the_light_and_in_the_dark(new_context, let_in, site, scheme):
    page = let_in(new_context(color_scheme=scheme).new_page())
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 150) is (scheme == "dark")
    selector = "h1, h2, p, dt, dd, td, th, label, a, button, .pill, time"
    for path in PAGES:
        page.goto(f"{site}{path}")
        weak = [one for one in page.evaluate(CONTRAST, selector) if one[1] < 4.5]
        assert weak == [], path


def test_by_keyboard_alone(page, let_in, site):
    let_in(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.goto(f"{site}/record?at=billing/charge:9")
    page.get_by_label("It was done").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("It failed for good")).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("refunded")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("It failed for good?")


if HEAVY:  # a browser takes its time, and the same is tried without one

    def test_a_held_key_is_not_forgotten_without_a_word(page, let_in, once, site):
        let_in(page)
        page.goto(f"{site}/record/forget?at=billing/charge:9")
        page.get_by_role("button", name="Forget it").click()
        expect(page).to_have_url(re.compile("/record/forget"))  # the browser wants the box checked
        assert once.get("charge:9", scope="billing") is not None
        page.get_by_label("I know that it may happen twice").check()
        page.get_by_role("button", name="Forget it").click()
        expect(page.locator(".notice")).to_contain_text("The key is forgotten")
        assert once.get("charge:9", scope="billing") is None

    def test_the_first_call_of_the_process_brings_the_numbers(page, let_in, once):
        page.clock.install()
        let_in(page)
        expect(page.get_by_text("not known here")).to_be_visible()
        once.run("first", lambda: 1)
        page.clock.run_for(2000)
        expect(page.locator('[data-text="saved"]')).to_have_text("0")

    def test_without_scripts_everything_works_but_the_live_numbers(new_context, let_in, site):
        page = let_in(new_context(java_script_enabled=False).new_page())
        page.get_by_role("link", name="All held").click()
        page.get_by_role("link", name="billing/charge:9").click()
        page.get_by_label("It was not done").check()
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Yes").click()
        expect(page.locator(".pill").first).to_have_text("released")
