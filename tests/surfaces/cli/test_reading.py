"""ls and show: everything about records, whatever is in them."""

import json
import sqlite3
from contextlib import closing

import pytest

from oncekey import Once
from tests.surfaces.cli.shop import CARD, HOUR, hours_ago, running, url_of

EVIL = "red\x1b[31m\u202eflow\nnext"


@pytest.fixture
def once(shop):
    once = Once(url_of(shop), observers=())
    yield once
    once.close()


def damage(path, **columns):
    """The charge that was completed has these bytes in its columns."""
    with closing(sqlite3.connect(path)) as file, file:
        for column, value in columns.items():
            change = f"UPDATE oncekey_records SET {column} = ? WHERE key = 'charge:1041'"  # noqa: S608 - our own names
            file.execute(change, (value,))


def show(run, *arguments):
    done = run("show", "charge:1041", "--scope", "billing", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def keys(done):
    assert done.exit_code == 0
    return [line.split()[2] for line in done.stdout.splitlines()[1:]]


def test_ls_chooses_by_scope_and_status(shop, run):
    assert keys(run("ls", "--scope", "")) == ["import:42", "report:11"]
    assert keys(run("ls", "--scope", "billing", "--status", "failed")) == ["charge:1042"]
    assert keys(run("ls", "--status", "running")) == ["report:11"]


def test_ls_of_nothing_is_done_and_says_so_beside_the_output(shop, run):
    done = run("ls", "--scope", "nobody's")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no records\n")
    done = run("ls", "--scope", "nobody's", "--json")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "programs"])
def test_ls_says_when_there_are_more(shop, run, form):
    more = run("ls", "--limit", "4", *form)
    assert more.stderr == "there are more than 4; --limit 0 lists all\n"
    assert len(more.stdout.splitlines()) == (4 if form else 5)
    assert run("ls", "--limit", "5", *form).stderr == ""
    assert len(run("ls", "--limit", "0", *form).stdout.splitlines()) == (5 if form else 6)


def test_ls_never_cuts_or_folds_a_line_without_a_terminal(shop, run, once):
    once.run("k" * 255, lambda: 1)
    assert "k" * 255 in keys(run("ls", COLUMNS="40"))


def test_show_prints_the_result_only_when_asked(shop, run):
    assert CARD not in show(run)
    assert CARD not in show(run, "--json")
    assert '{"id": "pay-1041", "paid_with": "card 4242"}' in show(run, "--result")
    assert json.loads(show(run, "--json", "--result"))["result"]["paid_with"] == CARD


def test_show_cuts_a_long_result_for_people_only(shop, run, once):
    once.run("long", lambda: "x" * 5000)
    people = run("show", "long", "--result").stdout
    assert "x" * 1999 + " ... (3002 more characters)" in people
    assert "x" * 5000 in run("show", "long", "--result", "--json").stdout


def test_results_that_json_does_not_know_are_text(shop, run, once):
    with once.attempt("odd") as attempt:
        attempt.complete({"raw": b"\xff", "no": float("inf"), "list": [1.5, True, None], 7: "int"})
    value = json.loads(run("show", "odd", "--result", "--json").stdout)["result"]
    assert value == {"raw": "/w==", "no": "inf", "list": [1.5, True, None], "7": "int"}


def test_a_result_that_was_not_kept_is_told_from_one_that_is_none(shop, run, once):
    once.run("none", lambda: None)
    once.options(max_result=10).run("large", lambda: "x" * 100)
    assert "  result       null\n" in run("show", "none", "--result").stdout
    large = run("show", "large", "--result").stdout
    assert "  result       not kept\n" in large
    assert "its result was not kept" in large
    assert json.loads(run("show", "large", "--json").stdout)["result_size"] is None
    assert json.loads(run("show", "none", "--json").stdout)["result_size"] == 1


def test_bytes_that_cannot_be_read_are_named_and_stop_nothing(shop, run):
    damage(shop, result=b"\xc1", noted=b"\xc1", error=b"\xc1")
    people = show(run, "--result")
    assert "the result of 'charge:1041' cannot be read" in people
    assert "the notes of 'charge:1041' cannot be read" in people
    assert "failure      it cannot be read" in people
    programs = json.loads(show(run, "--json", "--result"))
    assert programs["unreadable"] == ["notes", "steps", "failure", "result"]
    assert programs["result"] is programs["notes"] is programs["failure"] is None
    assert next(x for x in run("ls").stdout.splitlines() if "1041" in x).split()[-2:] == ["?", "?"]


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "programs"])
def test_stored_text_cannot_steer_a_terminal(shop, run, once, form):
    view = once.options(label=EVIL, reference=EVIL, on_error="keep")
    with pytest.raises(ValueError, match="red"), view.attempt("evil") as attempt:
        attempt.note(**{EVIL: EVIL})
        attempt.step(EVIL, lambda: 1)
        raise ValueError(EVIL)
    for done in (run("ls", *form), run("show", "evil", *form)):
        assert done.exit_code == 0
        assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert "flow" in run("show", "evil").stdout


@pytest.mark.parametrize(
    ("named", "words", "command"),
    [
        (("report:11",), "An attempt is running", "oncekey forget report:11 --force"),
        (("charge:1041", "--scope", "billing"), "gets the result", "oncekey forget charge:1041 "),
        (("charge:1042", "--scope", "billing"), "same failure", "oncekey forget charge:1042 "),
        (("import:42",), "finds what was noted", None),
    ],
)
def test_show_says_what_can_be_done_next(shop, run, named, words, command):
    text = run("show", *named).stdout
    assert words in text
    assert command is None or f"  {command}" in text
    assert ("oncekey" in text) == (command is not None)


def test_show_tells_a_lease_that_is_over_and_a_release_without_notes(shop, run, once):
    store = hours_ago(shop, 2)
    store.claim(running("dead", lease=HOUR))
    store.close()
    with pytest.raises(ValueError, match="no"), once.attempt("free"):
        raise ValueError("no")
    dead = run("show", "dead").stdout
    assert "has not renewed its lease" in dead
    assert "UTC (1 h ago)" in dead
    assert "The next call runs.\n" in run("show", "free").stdout


def test_the_commands_it_shows_can_be_copied(shop, run, once):
    once.run("-it's $HOME", lambda: 1)
    url = url_of(shop)
    text = run("show", "--store", url, "--", "-it's $HOME").stdout
    assert f"""  oncekey forget --store {url} -- '-it'"'"'s $HOME'\n""" in text
    assert (
        f"oncekey forget report:11 --store {url} --force"
        in run("--store", url, "show", "report:11").stdout
    )
