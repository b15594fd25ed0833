"""Takes the pictures of docs/dashboard.md: `python -m tests.dashboard.pictures`."""

import math
import os
import random
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from bench.cases.full_stores import fill_sqlite
from oncekey import Once
from oncekey.dashboard import Dashboard
from oncekey.dashboard.counter import SLOT_SECONDS, SLOTS, CallCounter
from oncekey.engine import runtime
from oncekey.outbox import Message, Outbox, OutboxMessage, Relay
from oncekey.outbox.targets import MessageRefusedError
from tests.dashboard.busy_shop import fill
from tests.dashboard.conftest import TOKEN, tell
from tests.dashboard.server import serving
from tests.system.browser.conftest import ARGUMENTS
from tests.system.packages import find_chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE: dict[str, Any] = {"viewport": {"width": 1180, "height": 780}}
NARROW: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
HELD = "/record?at=billing/charge:80627"
# A name, what the browser is like, the page, and what is checked on it.
PICTURES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("dashboard", WIDE | {"viewport": {"width": 1180, "height": 1640}}, "/?over=day", ""),
    ("dashboard-labels", WIDE, "/labels", ""),
    ("dashboard-dark", WIDE | {"color_scheme": "dark"}, "/records?scope=billing", ""),
    ("dashboard-record", WIDE | {"viewport": {"width": 1180, "height": 900}}, HELD, "result"),
    ("dashboard-outbox", WIDE, "/outbox", ""),
    ("dashboard-letter", WIDE, "/outbox/letter?id=o-7713", "edit"),
    ("dashboard-outbox-phone-dark", NARROW | {"color_scheme": "dark"}, "/outbox", ""),
    ("dashboard-phone", NARROW, "/records", ""),
    ("dashboard-phone-dark", NARROW | {"color_scheme": "dark"}, "/", ""),
)
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<match target="pattern"><test name="family"><string>system-ui</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Liberation Sans</string></edit></match>
<match target="pattern"><test name="family"><string>ui-sans-serif</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Liberation Sans</string></edit></match>
</fontconfig>"""


def traffic(counter: CallCounter) -> None:
    """Five minutes of calls, with a client in the middle that repeats itself."""
    chance = random.Random(4)  # noqa: S311 - the same picture every time
    present = time.monotonic()
    counter._since -= 6 * 3600
    for slot in range(SLOTS):
        counter._clock = lambda at=present - SLOT_SECONDS * (SLOTS - slot - 1): at  # type: ignore[misc]  # a default argument
        count = int(24 + 10 * math.sin(slot / 7) + 14 * chance.random())
        repeating = 0.7 if 25 < slot < 36 else 0.2
        for _ in range(count):
            counter(tell("duplicate" if chance.random() < repeating else "new"))
    counter._counted = {"new": 5_549, "duplicate": 1_622, "busy": 77, "reused": 2}


def activity(store: Any) -> None:
    """A day of all processes: quiet nights, and a store that was away for a while."""
    chance = random.Random(7)  # noqa: S311 - the same picture every time
    for ago in (*range(60), *range(60, 24 * 60, 5)):
        busy = 1 + math.sin((ago / 60 - 4) / 24 * 2 * math.pi)
        new = int(20 + 160 * busy + 40 * chance.random()) // (1 if ago >= 60 else 5)
        duplicates = int(new * (0.9 if 300 < ago < 345 else 0.24) * (0.8 + 0.4 * chance.random()))
        held = 3 if ago in (190, 195) else int(chance.random() > 0.985)
        store.add_activity(
            (new, duplicates, held, chance.randrange(9, 40) if 180 <= ago <= 200 else 0),
            ago * 60_000_000,
        )


def fill_outbox(path: Path) -> str:
    """An outbox with dead letters, and messages that wait behind a mail server."""
    url = f"sqlite:///{path}"
    outbox = Outbox(url)
    wrong = {
        "o-7713": ValueError("no field customer in the event"),
        "m-7698": MessageRefusedError("no stream takes this subject; make one"),
    }

    def refuse(message: OutboxMessage) -> None:
        if message.to == "mail.receipts" and message.id not in wrong:
            raise MessageRefusedError("550 mailbox is full")
        if message.id in wrong:
            raise wrong[message.id]

    def put(*numbers: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for number in numbers:
            body = {"order": number, "amount": 1999, "currency": "EUR"}
            paid = Message(id=f"o-{number}", type="order.paid", body=body)
            outbox.put(connection, paid, to="orders.paid", key=f"customer-{number % 97}")
            mail = Message(id=f"m-{number}", type="receipt", body={"order": number})
            outbox.put(connection, mail, to="mail.receipts")
        connection.execute("COMMIT")

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        put(7713, 7698)
        relay = Relay(url, refuse, max_tries=1)
        relay.drain()
        relay.close()
        put(*range(7800, 7806))
        relay = Relay(url, refuse)
        relay.drain()
        relay.close()
        connection.execute(
            "UPDATE outbox_messages SET created_at = strftime('%Y-%m-%d %H:%M:%f000', "
            "created_at, '-3 hours'), due_at = strftime('%Y-%m-%d %H:%M:%f000', due_at, "
            "'-2 hours'), tries = 20 WHERE status = 'dead'"
        )
    outbox.close()
    return url


def picture_of_a_store_that_is_down(browser: Any, site: str, board: Dashboard, store: Any) -> None:
    """The overview, open while its store goes away."""
    page = browser.new_context(viewport={"width": 1180, "height": 640}).new_page()
    page.goto(f"{site}/enter?ticket={board.ticket()}")
    moved = store.path.rename(store.path.with_suffix(".moved"))
    store.path.mkdir()  # where there should be a file
    page.locator('[data-mode="lost"]').wait_for()
    page.screenshot(path=IMAGES / "dashboard-store-down.png", animations="disabled")
    store.path.rmdir()
    moved.rename(store.path)


def picture_of_a_million(browser: Any, path: Path) -> None:
    """The overview of as many records, as `oncekey dashboard` shows it."""
    once = Once(fill_sqlite(path, 1_000_000, time.time_ns() // 1000), observers=())
    activity(once.store)
    board = Dashboard(once, token=TOKEN, watch=False)
    with serving(board) as site:
        page = browser.new_context(viewport={"width": 1180, "height": 1180}).new_page()
        page.goto(f"{site}/enter?ticket={board.ticket()}")
        page.goto(f"{site}/?over=day")
        page.screenshot(path=IMAGES / "dashboard-million.png", animations="disabled")
        page.goto("about:blank")
    once.close()


def main() -> None:
    vars(runtime)["COUNT_EVERY"] = 86_400.0  # what fills the shop is not in the charts
    with tempfile.TemporaryDirectory() as folder:
        fill(f"{folder}/shop.db")
        fonts = Path(folder, "fonts.conf")
        fonts.write_text(FONTS)
        once = Once(f"sqlite:///{folder}/shop.db", observers=())
        outbox = fill_outbox(Path(folder, "outbox.db"))
        board = Dashboard(once, token=TOKEN, show_results=True, outbox=outbox)
        counter = board._site.counter
        assert counter is not None
        traffic(counter)
        activity(once.store)
        with serving(board) as site, sync_playwright() as playwright:
            environment: dict[str, str | float | bool] = {
                **os.environ,
                "FONTCONFIG_FILE": str(fonts),
            }
            browser = playwright.chromium.launch(
                executable_path=find_chromium(), args=ARGUMENTS, env=environment
            )
            for name, options, path, ending in PICTURES:
                page = browser.new_context(**options).new_page()
                page.goto(f"{site}/enter?ticket={board.ticket()}")
                page.goto(f"{site}{path}")
                if ending:
                    page.check(f'input[value="{ending}"]')
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")
            picture_of_a_store_that_is_down(browser, site, board, once.store)
            picture_of_a_million(browser, Path(folder, "million.db"))
            browser.close()
        once.close()


if __name__ == "__main__":
    main()
