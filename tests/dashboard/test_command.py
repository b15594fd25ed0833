"""`oncekey dashboard` in a process of its own: one link, this machine only."""

import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from oncekey import Once
from tests.patience import PATIENCE

# The command alone, as the program runs it.
PROGRAM = """
import sys, typer
from oncekey.cli.dashboard import dashboard
from oncekey.cli.options import ChosenStore
from oncekey.cli.program import Program
app = typer.Typer(cls=Program)
app.command()(dashboard)
@app.callback()
def start(ctx: typer.Context): ctx.obj = ChosenStore("sqlite:///none.db", typed=False)
app()
"""


@pytest.fixture
def start(tmp_path):
    """Starts the command; it is stopped with the test."""
    started = []

    def start(*arguments: str):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ONCEKEY_")}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "dashboard", *arguments],
            cwd=tmp_path,
            env=environment | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def store(tmp_path):
    once = Once(f"sqlite:///{tmp_path / 'records.db'}", observers=())
    once.run("k-1", lambda: "a secret")
    once.close()
    return f"sqlite:///{tmp_path / 'records.db'}"


def test_the_link_works_once_and_ctrl_c_ends_it(start, store):
    process = start("--store", store, "--port", "0")
    link = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?ticket=[\w-]{43}", link)
    with (
        httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser,
        httpx.Client(timeout=PATIENCE) as other,
    ):
        page = browser.get(link)
        assert page.status_code == 200
        assert "ticket" not in str(page.url)
        assert "Duplicates saved" not in page.text  # this process makes no calls that it could count
        record = browser.get(page.url.join("/record?at=k-1")).text
        assert "a secret" not in record
        assert other.get(link).status_code == 401
        assert other.get(page.url).status_code == 401
        assert other.get(page.url, headers={"Host": "evil.example"}).status_code == 400
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out == ""
    assert "The link works once, within 15 minutes. Ctrl-C ends the dashboard.\n" in said
    assert "Traceback" not in said


def test_results_are_shown_to_who_asks_for_them(start, store):
    process = start("--store", store, "--port", "0", "--show-results")
    link = process.stdout.readline().strip()
    with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
        page = browser.get(link)
        assert "a secret" in browser.get(page.url.join("/record?at=k-1")).text


def test_a_port_that_is_taken_is_one_sentence(start, store):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--store", store, "--port", str(taken.getsockname()[1]))
        out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert out == ""
    assert "--port 0 takes one that is free" in said


@pytest.mark.parametrize(
    ("url", "words"),
    [("sqlite:///nothing.db", "there is no store"), ("redis://127.0.0.1:1/0", "127.0.0.1:1")],
)
def test_a_store_that_is_not_there_ends_it_with_the_reason(start, url, words):
    process = start("--store", url, "--port", "0")
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert out == ""
    assert said.startswith("oncekey: ")
    assert words in said
    assert "Traceback" not in said
