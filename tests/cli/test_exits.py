"""Every exit code, each with one sentence on the standard error, and nothing changed."""

import sqlite3
from contextlib import closing

import pytest

from tests.cli.shop import url_of

NOTHING = [
    ("show", "charge:1041"),  # it is in a scope
    ("show", "billing/charge:1007"),  # it has expired
    ("forget", "no such key"),
    ("resolve", "no such key", "--retry"),
    ("resolve", "import:42", "--retry"),
    ("resolve", "report:11", "--result", "1"),
]
WRONG = [
    ("lss",),
    ("show",),
    ("show", "a", "b"),
    ("ls", "--frob"),
    ("ls", "--status", "asleep"),
    ("ls", "--limit", "-1"),
    ("ls", "--limit", "many"),
    ("ls", "--scope", "söme"),
    ("ls", "--older", "long"),
    ("ls", "--newer", "-1h"),
    ("ls", "--after", "page 2"),
    ("watch",),  # there is no terminal
    ("watch", "--json", "--every", "0"),
    ("watch", "--json", "--count", "-1"),
    ("show", "a/b/c"),
    ("show", ""),
    ("show", "tab\there"),
    ("purge", "--grace", "a while"),
    ("purge", "--grace", "-1s"),
    ("resolve", "charge:1043", "--scope", "billing"),
    ("resolve", "charge:1043", "--scope", "billing", "--retry", "--error", "no"),
    ("resolve", "charge:1043", "--scope", "billing", "--result", "done"),
    ("resolve", "charge:1043", "--scope", "billing", "--result", ""),
    ("resolve", "charge:1043", "--scope", "billing", "--result", "1" + "0" * 30),
    ("--store", "memory://", "ls"),
    ("--store", "mongodb://user:secret@host/", "ls"),
    ("--store", "oncekey.db", "ls"),
    ("ls", "--store", "sqlite:///oncekey.db?speed=high"),
    ("export", "-"),
    ("export", "/dev/zero"),
]
REFUSED = [("forget", "report:11"), ("forget", "charge:1043", "--scope", "billing", "--yes")]


def contents(path):
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT * FROM oncekey_records ORDER BY scope, key").fetchall()


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        *((1, arguments) for arguments in NOTHING),
        *((2, arguments) for arguments in WRONG),
        *((3, arguments) for arguments in REFUSED),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(shop, run, code, arguments):
    before = contents(shop)
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("oncekey: ")
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr
    assert contents(shop) == before


def test_a_store_that_stays_locked_is_store_trouble(shop, run):
    with closing(sqlite3.connect(shop, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        url = f"{url_of(shop)}?busy_timeout=10ms"
        done = run("forget", "import:42", "--store", url)
    assert done.exit_code == 4
    assert "locked" in done.stderr


@pytest.mark.parametrize(
    "command", [("forget", "import:42"), ("resolve", "billing/charge:1043", "--retry")]
)
def test_a_record_of_a_newer_release_is_not_changed(shop, run, command):
    with closing(sqlite3.connect(shop)) as file, file:
        file.execute("UPDATE oncekey_records SET version = 99")
    before = contents(shop)
    done = run(*command)
    assert done.exit_code == 4
    assert "newer release" in done.stderr
    assert contents(shop) == before


def test_records_that_an_export_leaves_out_are_told(shop, run):
    with closing(sqlite3.connect(shop)) as file, file:
        file.execute("UPDATE oncekey_records SET version = 99 WHERE key = 'import:42'")
    done = run("export", "records.jsonl")
    assert done.exit_code == 4
    assert "records.jsonl lacks 1 record of a newer release" in done.stderr
    done = run("import", "records.jsonl")
    assert done.exit_code == 1
    assert "1 of a newer release: the export could not write them" in done.stdout


COMMANDS = [
    ("ls",),
    ("show", "a"),
    ("watch", "--json"),
    ("stats",),
    ("forget", "a"),
    ("resolve", "a", "--retry"),
    ("purge",),
]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:9", "postgresql://127.0.0.1:9/shop"])
@pytest.mark.parametrize("command", [*COMMANDS, ("migrate",)], ids=lambda command: command[0])
def test_a_store_that_cannot_be_reached_is_told_with_the_reason(run, url, command):
    done = run("--store", url.replace("//", "//anna:secret@"), *command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("oncekey: ")
    assert "127.0.0.1:9" in done.stderr
    assert "refused" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    COMMANDS,
    ids=lambda arguments: arguments[0],
)
def test_a_file_that_is_not_there_is_not_made(folder, run, arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "there is no store at oncekey.db" in done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("script", ["", "CREATE TABLE theirs (id)"], ids=["empty", "theirs"])
def test_a_file_of_another_program_is_not_changed(folder, run, script):
    path = folder / "theirs.db"
    path.touch()
    with closing(sqlite3.connect(path)) as file:
        file.executescript(script)
    before = path.read_bytes()
    done = run("--store", url_of(path), "ls")
    assert done.exit_code == 2
    assert "no records of oncekey" in done.stderr
    assert path.read_bytes() == before


def test_a_damaged_file_and_a_place_without_files_are_named(folder, run):
    (folder / "text.db").write_text("not a database, but long enough to be read as one" * 99)
    damaged = run("--store", "sqlite:///text.db", "ls")
    nowhere = run("--store", "sqlite:///text.db/inside.db", "ls")
    assert (damaged.exit_code, nowhere.exit_code) == (2, 2)
    assert "text.db is damaged or not a database" in damaged.stderr
    assert "there is no store at text.db/inside.db: Not a directory" in nowhere.stderr


def test_the_store_comes_from_the_command_line_then_from_the_environment(shop, run):
    other = {"ONCEKEY_STORE": "sqlite:///a.db", "REDIS_URL": "sqlite:///b.db"}
    assert "no store at a.db" in run("ls", **other).stderr
    assert "no store at b.db" in run("ls", REDIS_URL="sqlite:///b.db", ONCEKEY_STORE="").stderr
    assert run("ls", "--store", url_of(shop), **other).exit_code == 0
    assert run("--store", url_of(shop), "ls", **other).exit_code == 0


def test_wrong_settings_of_the_environment_are_named(shop, run):
    done = run("ls", ONCEKEY_TTL="soon")
    assert done.exit_code == 2
    assert "ttl" in done.stderr


def test_without_a_command_it_explains_itself(run):
    done = run()
    assert done.exit_code == 0
    assert "Commands:" in done.stdout


def test_an_unknown_option_of_a_redis_url_is_one_sentence(run):
    said = run("ls", "--store", "redis://127.0.0.1:1/0?bogus=1")
    assert said.exit_code == 2
    assert said.stdout == ""
    assert len(said.stderr.splitlines()) == 1
    assert "it has the unknown option 'bogus'" in said.stderr
