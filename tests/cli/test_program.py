"""The installed program, in a process of its own, on a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import oncekey as library
from oncekey import Once
from tests.cli.page import environment
from tests.cli.shop import CARD, Receipt, url_of

KEYS = ["report:11", "import:42", "charge:1043", "charge:1042", "charge:1041"]


def test_ls_prints_plain_columns_and_no_results(shop, oncekey):
    done = oncekey("ls")
    assert (done.returncode, done.stderr) == (0, "")
    titles, *lines = done.stdout.splitlines()
    assert titles.split()[:2] == ["STATUS", "KEY"]
    assert [line.split()[1].removeprefix("billing/") for line in lines] == KEYS
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()
    assert CARD not in done.stdout


def test_ls_prints_json_lines_without_results(shop, oncekey):
    done = oncekey("ls", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["key"] for record in records] == KEYS
    assert not [record for record in records if "result" in record or "nonce" in record]
    assert CARD not in done.stdout


def test_a_held_record_is_shown_resolved_and_then_replayed_as_its_type(shop, oncekey):
    shown = oncekey("show", "billing/charge:1043")
    assert "oncekey resolve billing/charge:1043 --retry" in shown.stdout
    kept = json.dumps({"id": "pay-9", "paid_with": "cash"})
    done = oncekey("resolve", "billing/charge:1043", "--result", kept)
    assert (done.returncode, done.stderr) == (0, "")

    def charge() -> Receipt:
        raise AssertionError

    once = Once(url_of(shop), scope="billing")
    assert once.options(fingerprint=None).run("charge:1043", charge) == Receipt("pay-9", "cash")
    once.close()


def test_forget_without_a_terminal_does_not_ask(shop, oncekey):
    assert oncekey("forget", "charge:1041", "--scope", "billing").returncode == 0
    assert oncekey("show", "charge:1041", "--scope", "billing").returncode == 1


def test_purge_says_how_many(shop, oncekey):
    assert oncekey("purge", "--grace", "400d").stdout == "0 records purged\n"
    assert oncekey("purge", "--json").stdout == '{"purged": 1}\n'


def test_version(oncekey):
    assert oncekey("--version").stdout == f"oncekey {library.__version__}\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing):
    script = (
        f"import sys; sys.modules[{missing!r}] = None; from oncekey.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "ls"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "oncekey[cli]" in done.stderr


def test_a_defect_of_ours_is_not_taken_for_a_missing_extra():
    script = (
        "import sys; sys.modules['oncekey.cli.show'] = None;"
        "from oncekey.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "ls"], capture_output=True, text=True, check=False
    )
    assert "ModuleNotFoundError" in done.stderr


def test_a_reader_that_leaves_early_is_no_error(shop, folder):
    reading = subprocess.Popen(
        ["oncekey", "ls", "--json"],  # noqa: S607 - the one beside this interpreter
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reading.stdout is not None
    reading.stdout.close()
    assert reading.communicate() == (b"", b"")
    assert reading.returncode == 0


@pytest.mark.parametrize("arguments", [("ls",), ("ls", "--json"), ("--help",)])
def test_an_output_that_cannot_be_written_is_one_sentence(shop, folder, arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            ["oncekey", *arguments],  # noqa: S607 - the one beside this interpreter
            cwd=folder,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    sentence = "oncekey: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, sentence)


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", "forget import:42 --yes", 0),
        ("2>&-", "forget import:42 --yes", 0),
        ("<&- >&- 2>&-", "forget import:42 --yes", 0),
        ("2>&-", "forget 'no such key'", 1),
        ("2>/dev/full", "forget 'no such key'", 1),
    ],
)
def test_streams_that_the_caller_has_closed_stop_nothing(shop, folder, closed, arguments, code):
    done = subprocess.run(
        ["sh", "-c", f"oncekey {arguments} {closed}"],  # noqa: S607 - as in a terminal
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (code, False)
    once = Once(url_of(shop), observers=())
    assert (once.get("import:42") is None) == (code == 0)
    assert once.get("charge:1041", scope="billing") is not None
    once.close()


def test_a_status_that_there_is_not_is_named_beside_those_that_there_are(shop, oncekey):
    done = oncekey("ls", "--status", "asleep")
    start = "oncekey: Invalid value for '--status': 'asleep' is not one of 'running', 'completed',"
    assert done.stderr.startswith(start)


def test_letters_that_the_output_lacks_are_escaped(shop, oncekey):
    once = Once(url_of(shop), observers=())
    with once.attempt("menu") as attempt:
        attempt.note(dish="crème")
    once.close()
    assert 'noted dish = "crème"' in oncekey("show", "menu").stdout
    done = oncekey("show", "menu", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r'dish = "cr\xe8me"' in done.stdout
