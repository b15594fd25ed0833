"""The program on a terminal: colours, questions and progress."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing

import pytest

from oncekey import Once
from tests.cli.page import environment
from tests.cli.shop import url_of
from tests.patience import PATIENCE

ASKED = "[y/N]: "  # the space is printed by the very call that reads the answer
CHARGE = ("forget", "billing/charge:1041")


class Terminal:
    """A program on a pseudo-terminal: what it printed, and its exit code in the end."""

    def __init__(self, *arguments: str, **settings: str) -> None:
        self._master, slave = pty.openpty()
        self.screen = ""
        self._process = subprocess.Popen(
            ["oncekey", *arguments],  # noqa: S607 - the one beside this interpreter
            env={**environment(), "COLUMNS": "120", **settings},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def until(self, text: str) -> None:
        """The text is on the screen."""
        while text not in self.screen:
            self.screen += self._read()

    def _read(self) -> str:
        """What the program prints next; empty when it has closed the terminal."""
        if not select.select([self._master], [], [], PATIENCE)[0]:
            self._process.kill()
            pytest.fail(f"the program says no more than {self.screen!r}")
        try:
            return os.read(self._master, 65536).decode()
        except OSError:  # how Linux says that the last writer has closed it
            return ""

    def interrupt(self) -> None:
        """As Ctrl-C does to whoever has the terminal."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        self._process.terminate()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """It has ended; its exit code."""
        while more := self._read():
            self.screen += more
        os.close(self._master)
        return self._process.wait()


@pytest.fixture
def answer() -> Callable[[str], Terminal]:
    """The program has asked whether to forget, and got this answer."""

    def answer(text: str) -> Terminal:
        terminal = Terminal(*CHARGE)
        terminal.until(ASKED)
        terminal.type(text)
        return terminal

    return answer


def forgotten(shop) -> bool:
    once = Once(url_of(shop), observers=())
    record = once.get("charge:1041", scope="billing")
    once.close()
    return record is None


def test_statuses_have_colours(shop):
    terminal = Terminal("ls")
    assert terminal.end() == 0
    assert re.search(r"\x1b\[1;33mheld", terminal.screen)
    assert re.search(r"\x1b\[32mcompleted", terminal.screen)


@pytest.mark.parametrize("command", [("ls",), ("show", "billing/charge:1043")])
def test_no_color_leaves_plain_text(shop, command):
    terminal = Terminal(*command, NO_COLOR="1")
    assert terminal.end() == 0
    assert "held" in terminal.screen
    assert "\x1b" not in terminal.screen


def test_a_narrow_terminal_gets_fewer_columns_and_whole_keys(shop):
    terminal = Terminal("ls", COLUMNS="70", NO_COLOR="1")
    assert terminal.end() == 0
    titles, *lines = terminal.screen.splitlines()
    assert titles.split() == ["STATUS", "KEY", "ATTEMPT", "AGE", "EXPIRES", "NOTES", "STEPS"]
    assert [line.split()[1] for line in lines if "charge" in line] == [
        "billing/charge:1043",
        "billing/charge:1042",
        "billing/charge:1041",
    ]


def test_forget_asks_and_takes_a_yes(shop, answer):
    terminal = answer("y\n")
    assert terminal.end() == 0
    assert "Forget 'billing/charge:1041' (completed, 2 h old)?" in terminal.screen
    assert forgotten(shop)


@pytest.mark.parametrize("text", ["n\n", "\n", "\x04"], ids=["no", "enter", "end"])
def test_forget_asks_and_takes_anything_else_as_a_no(shop, answer, text):
    terminal = answer(text)
    assert terminal.end() == 1
    assert "nothing was changed" in terminal.screen
    assert "Traceback" not in terminal.screen
    assert not forgotten(shop)


def test_forget_does_not_ask_after_yes(shop):
    terminal = Terminal(*CHARGE, "--yes")
    assert terminal.end() == 0
    assert "[y/N]" not in terminal.screen
    assert forgotten(shop)


def test_a_yes_is_about_the_record_that_was_shown(shop, answer):
    terminal = Terminal(*CHARGE)
    terminal.until(ASKED)
    once = Once(url_of(shop), observers=(), scope="billing")
    once.forget("charge:1041")
    once.run("charge:1041", lambda: "charged anew")
    once.close()
    terminal.type("y\n")
    assert terminal.end() == 1
    assert "has changed in the meantime" in terminal.screen
    assert not forgotten(shop)


def test_purge_asks_and_shows_its_progress(shop):
    terminal = Terminal("purge")
    terminal.until(ASKED)
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "Remove 1 record that expired more than 7d ago" in terminal.screen
    assert "purging" in terminal.screen
    assert "1/1" in terminal.screen
    assert "1 record purged" in terminal.screen


def test_purge_takes_a_no_and_does_not_ask_when_nothing_has_expired(shop):
    terminal = Terminal("purge")
    terminal.until(ASKED)
    terminal.type("n\n")
    assert terminal.end() == 1
    assert "nothing was changed" in terminal.screen
    assert Terminal("purge", "--yes").end() == 0
    nothing = Terminal("purge")
    assert nothing.end() == 0
    assert "0 records purged" in nothing.screen


@pytest.mark.parametrize(("text", "code"), [("y\n", 0), ("n\n", 1)], ids=["yes", "no"])
def test_resolve_asks(shop, text, code):
    terminal = Terminal("resolve", "billing/charge:1043", "--retry")
    terminal.until(ASKED)
    terminal.type(text)
    assert terminal.end() == code
    assert "was not done, and the next call runs it?" in terminal.screen


def test_the_help_has_frames_on_a_terminal_and_errors_have_none(shop):
    helping = Terminal("ls", "--help")
    assert helping.end() == 0
    assert "╭" in helping.screen
    wrong = Terminal("show")
    assert wrong.end() == 2
    assert wrong.screen == "oncekey: Missing argument 'KEY'; see `oncekey show --help`\r\n"


def made(shop, key):
    once = Once(url_of(shop), observers=())
    once.run(key, lambda: 1)
    once.close()


@pytest.mark.parametrize("end", ["interrupt", "terminate"])
def test_watch_draws_what_is_new_until_it_is_told_to_end(shop, end):
    terminal = Terminal("watch", "--every", "50ms", COLUMNS="100", LINES="20")
    terminal.until("billing/charge:1041")
    assert "sqlite:///oncekey.db" in terminal.screen
    made(shop, "just:now")
    terminal.until("just:now")
    getattr(terminal, end)()
    assert terminal.end() == 0
    assert terminal.screen.endswith("\x1b[?25h\x1b[?1049l")  # a cursor, the screen from before
    assert "Traceback" not in terminal.screen


def test_watch_waits_for_a_store_that_is_gone_for_a_while(shop):
    terminal = Terminal("watch", "--every", "50ms", COLUMNS="150", LINES="20")
    terminal.until("billing/charge:1041")
    with closing(sqlite3.connect(shop, isolation_level=None)) as file:
        file.execute("ALTER TABLE oncekey_records RENAME TO hidden")
        terminal.until("no such table")
        file.execute("ALTER TABLE hidden RENAME TO oncekey_records")
    made(shop, "just:now")
    terminal.until("just:now")
    terminal.interrupt()
    assert terminal.end() == 0


def test_watch_fits_a_small_terminal(shop):
    terminal = Terminal("watch", "--count", "1", COLUMNS="40", LINES="7", NO_COLOR="1")
    assert terminal.end() == 0
    assert "report:11" in terminal.screen
    assert "charge:1041" not in terminal.screen


def test_stats_have_bars(shop):
    terminal = Terminal("stats", NO_COLOR="1")
    assert terminal.end() == 0
    assert "running    1   20%  ██████\r\n" in terminal.screen
