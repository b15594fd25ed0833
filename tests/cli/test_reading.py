"""ls and show: everything about records, whatever is in them."""

import json
import re
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from oncekey import Once
from oncekey.core.requests import Renew, Verdict
from tests.cli.shop import CARD, HOUR, hours_ago, running, url_of

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
    done = run("show", "billing/charge:1041", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def keys(done):
    assert done.exit_code == 0
    return [line.split()[1] for line in done.stdout.splitlines()[1:]]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("--scope", ""), ["report:11", "import:42"]),
        (("--scope", "billing", "--status", "failed"), ["billing/charge:1042"]),
        (("--status", "running"), ["report:11"]),
        (("--label", "import"), ["import:42"]),
        (("--prefix", "charge:104", "--limit", "1"), ["billing/charge:1043"]),
        (("--older", "1h", "--status", "held"), ["billing/charge:1043"]),
        (("--older", "3h"), []),
        (("--newer", "1h"), []),
        (("--newer", "1d", "--scope", ""), ["report:11", "import:42"]),
    ],
)
def test_ls_chooses(shop, run, asked, found):
    assert keys(run("ls", *asked)) == found


def test_ls_lists_the_newest_first_and_goes_on_where_a_page_has_ended(shop, run):
    listed = []
    after = ()
    while True:
        done = run("ls", "--limit", "2", *after)
        listed += keys(done)
        if not done.stderr:
            break
        after = ("--after", done.stderr.split("--after ")[1].split(",")[0])
    assert listed == [
        "report:11",
        "import:42",
        "billing/charge:1043",
        "billing/charge:1042",
        "billing/charge:1041",
    ]


def test_a_running_record_whose_lease_is_over_is_lapsed_wherever_it_is_shown(shop, run):
    """Its status stays what it is: programs and `--status running` find it as before."""
    store = hours_ago(shop, 1)
    store.claim(running("report:12", lease=1))
    store.close()
    listed = run("ls", "--status", "running").stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [
        ["lapsed", "report:12"],
        ["running", "report:11"],
    ]
    fields = [json.loads(line) for line in run("ls", "--json").stdout.splitlines()[:2]]
    assert [(one["status"], one["lapsed"]) for one in fields] == [
        ("running", True),
        ("running", False),
    ]
    assert run("show", "report:12").stdout.startswith("report:12  lapsed\n")
    assert json.loads(run("show", "report:12", "--json").stdout)["lapsed"] is True
    counted = run("stats").stdout
    assert re.search(r"^running +2 ", counted, re.MULTILINE)
    assert "of those that are running, 1 lapsed: their leases are over\n" in counted
    assert json.loads(run("stats", "--json").stdout)["lapsed"] == 1
    assert "'report:12' is lapsed; --force forgets it" in run("forget", "report:12", "--yes").stderr
    watched = json.loads(run("watch", "--json", "--count", "1").stdout)
    assert (watched["lapsed"], watched["records"][0]["lapsed"]) == (1, True)


def test_ls_of_nothing_is_done_and_says_so_beside_the_output(shop, run):
    done = run("ls", "--scope", "nobody's")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no records\n")
    done = run("ls", "--scope", "nobody's", "--json")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "programs"])
def test_ls_says_when_there_are_more(shop, run, form):
    more = run("ls", "--limit", "4", *form)
    assert more.stderr == "there are more than 4; go on with --after 3, or --limit 0 for all\n"
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
    assert "completed after 0 ms: the failure cannot be read" in re.sub(r"\d+ ms", "0 ms", people)
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
        (("billing/charge:1041",), "gets the result", "oncekey forget billing/charge:1041\n"),
        (("billing/charge:1042",), "same failure", "oncekey forget billing/charge:1042\n"),
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
    assert re.search(r"UTC  1 h ago +lease over", dead)
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


@pytest.mark.parametrize(
    "named",
    [
        ("a b/c%d", None),  # % means nothing here
        ("a b/c%25d", None),  # as ls prints it
        ("c%d", "a b"),
        ("x%2Fy/p%2Fq", None),
        ("p/q", "x/y"),
    ],
)
def test_keys_are_accepted_as_they_are_printed_and_as_they_are(shop, run, once, named):
    once.options(scope="a b").run("c%d", lambda: 1)
    once.options(scope="x/y").run("p/q", lambda: 1)
    assert keys(run("ls", "--newer", "1h", "--scope", "x/y")) == ["x%2Fy/p%2Fq"]
    key, scope = named
    done = run("show", key, *(() if scope is None else ("--scope", scope)))
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("typed", ["/orders/7", "orders/7/", "a/b/c", "/7", "7/"])
def test_a_slash_too_many_is_explained(shop, run, once, typed):
    once.run("/orders/7", lambda: 1)
    done = run("show", typed)
    assert done.exit_code == 2
    assert "write others as %2F" in done.stderr
    assert run("show", "/orders/7", "--scope", "").exit_code == 0
    assert run("show", "%2Forders%2F7").exit_code == 0


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "programs"])
def test_redact_tells_nothing_of_a_key(shop, run, once, form):
    view = once.options(scope="anna@example.org", reference="ref-anna", on_error="keep")
    with pytest.raises(ValueError, match="anna"), view.attempt("order:anna") as attempt:
        attempt.note(name="anna")
        raise ValueError("anna has no money")
    named = ("show", "anna%40example.org/order:anna".replace("%40", "@"))
    for asked in (("ls",), named, (*named, "--result")):
        done = run(*asked, "--redact", *form)
        assert done.exit_code == 0
        assert "anna" not in done.stdout + done.stderr
        assert "sha256:" in done.stdout
    assert "anna" not in run("watch", "--json", "--count", "1", "--redact").stdout
    one = json.loads(run(*named, "--redact", "--json").stdout)
    other = json.loads(run("ls", "--limit", "1", "--redact", "--json").stdout)
    assert one["name"] == other["name"]  # the same every time


def test_a_record_of_a_newer_release_is_shown_as_far_as_it_is_understood(shop, run):
    with closing(sqlite3.connect(shop)) as file, file:
        file.execute("UPDATE oncekey_records SET version = 9, status = 'paused' WHERE attempt")
    assert keys(run("ls"))[0] == "report:11"
    people = run("show", "report:11")
    assert people.exit_code == 0
    assert "report:11  paused" in people.stdout
    assert "A newer release wrote it (format 9)" in people.stdout
    assert json.loads(run("show", "report:11", "--json").stdout)["version"] == 9
    assert "paused" in run("stats").stdout


def test_the_life_of_a_record_is_told_in_order(shop, run, once):
    view = once.options(on_crash="hold", heartbeat=False)
    with pytest.raises(ValueError, match="first"), view.attempt("long") as attempt:
        attempt.note(upload="up-7")
        attempt.step("load", lambda: 1)
        raise ValueError("first")
    with view.attempt("long") as attempt:
        attempt.complete("done")
    text = run("show", "long").stdout
    order = ["first claimed", "attempt 2 started", "noted upload", "step load done"]
    places = [text.index(words) for words in [*order, "completed after", "expires"]]
    assert places == sorted(places)
    assert "kept, 5 bytes; --result prints it" in text


def test_stats_count_and_say_what_the_numbers_are_worth(shop, run, monkeypatch):
    assert run("stats").stdout.splitlines() == [
        "running    1   20%",
        "completed  1   20%",
        "failed     1   20%",
        "released   1   20%",
        "held       1   20%",
        "total      5",
        "the oldest one is held for 2 h",
    ]
    told = json.loads(run("stats", "--json").stdout)
    assert (told["total"], told["exact"], told["looked_at"]) == (5, True, 5)
    monkeypatch.setattr("oncekey.stores.sqlite.browse.COUNTED", 1)
    monkeypatch.setattr("oncekey.stores.sqlite.browse._RUN", 1)
    monkeypatch.setattr("oncekey.stores.sqlite.browse._NEWEST", 1)
    said = run("stats").stdout
    assert "held" in said
    assert re.search(r"^held +1 ", said, re.MULTILINE)
    assert re.search(r"^released +(none seen|about \d)", said, re.MULTILINE)
    assert "estimated from" in said.splitlines()[-1]
    told = json.loads(run("stats", "--json").stdout)
    assert told["by_status"] == {"held": 1}
    assert "total" not in told
    assert set(told["estimated"]["by_status"]) == {"running", "completed", "failed", "released"}
    assert 0 not in told["estimated"]["by_status"].values()
    assert "total      5" in run("stats", "--exact").stdout.splitlines()


def test_ls_of_all_goes_from_page_to_page(shop, run, monkeypatch):
    monkeypatch.setattr("oncekey.cli.ls._AT_ONCE", 2)
    done = run("ls", "--limit", "0")
    assert done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        *("STATUS", "running", "released", "held", "failed", "completed")
    ]
    assert len(run("ls", "--limit", "0", "--json").stdout.splitlines()) == 5


def test_ls_says_how_far_it_has_come_when_it_looks_for_long(shop, run, monkeypatch):
    monkeypatch.setattr("oncekey.cli.ls._PATIENCE", 0)
    monkeypatch.setattr("oncekey.stores.sqlite.browse._WINDOW", 1)
    done = run("ls", "--status", "completed")
    assert done.exit_code == 0
    assert done.stderr == (
        "looked for 0 s and found 0; not all were looked at; go on with --after 6, or --limit 0 "
        "for all\n"
    )
    assert keys(run("ls", "--status", "completed", "--limit", "0")) == ["billing/charge:1041"]


def test_the_life_of_a_record_that_was_taken_over(shop, run):
    store = hours_ago(shop, 5)
    store.claim(running("lost", lease=HOUR))
    store.close()
    later = hours_ago(shop, 2)
    owner = later.claim(replace(running("lost", lease=HOUR), nonce="n2")).record
    later.close()
    renewed = hours_ago(shop, 1)
    ask = Renew(None, "lost", token=owner.token, nonce="n2", lease=12 * HOUR, ttl=HOUR)
    assert renewed.renew(ask) is Verdict.DONE
    renewed.close()
    text = run("show", "lost").stdout
    told = [line.split("  ")[-1].strip() for line in text.splitlines() if " UTC " in line]
    assert told == [
        "first claimed",
        "ended without a definite outcome",
        "attempt 2 started",
        "lease renewed, or a note written",
        "lease ends, unless renewed",
        "expires",
    ]


def test_size_tells_what_a_ttl_costs(shop, run):
    lines = run("size", "--ttl", "7d").stdout.splitlines()
    assert lines[0] == "records            5"
    assert lines[4].startswith("with a ttl of 7d   about ")
    told = json.loads(run("size", "--json").stdout)
    assert (told["records"], told["estimated_new_in_a_day"]) == (5, 5)
    assert told["bytes"] == shop.stat().st_size
    week = json.loads(run("size", "--json", "--ttl", "7d").stdout)
    assert week["estimated_bytes_with_ttl"] == 7 * told["estimated_bytes_with_ttl"]
    assert run("size", "--ttl", "soon").exit_code == 2
