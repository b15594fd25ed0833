"""forget, resolve and purge: what is true afterwards, and what they leave alone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncekey import Once, RememberedError
from oncekey.cli import keys
from oncekey.inspection.listing import find_record
from oncekey.messages import Inbox, Message
from tests.cli.shop import url_of
from tests.patience import until

HELD = ("billing/charge:1043",)


@pytest.fixture
def once(shop):
    once = Once(url_of(shop), observers=())
    yield once
    once.close()


@pytest.mark.parametrize(
    ("key", "scope"), [("report:11", None), ("charge:1043", "billing")], ids=["running", "held"]
)
def test_force_forgets_what_is_running_or_held(once, run, key, scope):
    done = run("forget", key, "--scope", scope or "", "--force")
    assert (done.exit_code, done.stderr) == (0, "")
    assert once.get(key, scope=scope) is None


def test_resolve_with_an_error_is_what_a_duplicate_hears(once, run):
    done = run("resolve", *HELD, "--error", "the bank refused")
    assert (done.exit_code, done.stdout) == (0, "'billing/charge:1043' is failed\n")
    with pytest.raises(RememberedError, match="the bank refused") as caught:
        once.options(scope="billing").run("charge:1043", lambda: 1)
    assert caught.value.type_name == "ResolvedByHandError"


def test_resolve_with_retry_lets_the_next_call_run_with_the_notes(once, run):
    assert run("resolve", *HELD, "--retry").stdout == "'billing/charge:1043' is released\n"
    with once.options(scope="billing").attempt("charge:1043") as attempt:
        assert (attempt.duplicate, attempt.number) == (False, 1)  # counted anew
        assert attempt.notes == {"request": "req-77"}


@pytest.mark.parametrize(("typed", "value"), [("-5", -5), ("null", None), ('"é"', "é")])
def test_resolve_takes_any_json(once, run, typed, value):
    assert run("resolve", *HELD, "--result", typed).exit_code == 0
    record = once.get("charge:1043", scope="billing")
    assert record is not None
    assert (record.status, record.value) == ("completed", value)


def test_somebody_who_resolves_first_wins(once, run, monkeypatch):
    monkeypatch.setattr(Once, "resolve", lambda *_, **__: False)
    done = run("resolve", *HELD, "--retry")
    assert done.exit_code == 1
    assert "not held any more" in done.stderr


def test_a_record_that_starts_to_run_while_we_look_is_not_forgotten(once, run, monkeypatch):
    seen = []

    def completed_at_first(*named):
        record = find_record(*named)
        assert record is not None
        seen.append(record)
        return replace(record, status="completed") if len(seen) == 1 else record

    monkeypatch.setattr(keys, "find_record", completed_at_first)
    done = run("forget", "report:11")
    assert done.exit_code == 3
    assert "'report:11' is running; --force forgets it" in done.stderr


def test_a_record_that_goes_away_while_we_look_is_not_forgotten_by_us(once, run, monkeypatch):
    monkeypatch.setattr(Once, "forget", lambda *_, **__: False)
    done = run("forget", "import:42")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "has changed in the meantime" in done.stderr


def test_purge_keeps_what_lives_and_what_expired_less_long_ago(once, run):
    living = [record.key for record in once.scan()]
    assert run("purge", "--grace", "12d").stdout == "0 records purged\n"
    assert run("purge").stdout == "1 record purged\n"
    assert run("purge", "--grace", "0").stdout == "0 records purged\n"
    assert [record.key for record in once.scan()] == living


def test_what_was_done_is_told_to_programs(once, run):
    resolved = json.loads(run("resolve", *HELD, "--retry", "--json").stdout)
    where = {"scope": "billing", "key": "charge:1043"}
    assert resolved == {"resolved": "billing/charge:1043", **where, "status": "released"}
    forgotten = json.loads(run("forget", *HELD, "--json").stdout)
    assert forgotten == {"forgotten": "billing/charge:1043", **where}


@pytest.fixture
def inbox(shop):
    """The shop has an inbox too, in the same file: two messages were handled long ago."""
    inbox = Inbox(url_of(shop), consumer="ledger")
    for number in (1, 2):
        with inbox.leased(Message(id=f"message-{number}")):
            pass
    inbox.close()
    with closing(sqlite3.connect(shop)) as file, file:
        file.execute("UPDATE processed_messages SET expires_at = datetime('now', '-10 days')")


@pytest.mark.row("M5")
def test_purge_removes_messages_of_an_inbox_too(inbox, run, shop):
    assert run("purge", "--grace", "20d").stdout == "0 records purged\n0 messages purged\n"
    assert run("purge", "--json").stdout == '{"purged": 1, "messages": 2}\n'
    assert run("purge").stdout == "0 records purged\n0 messages purged\n"


@pytest.mark.row("M5")
def test_purge_of_an_inbox_alone(inbox, run, shop):
    with closing(sqlite3.connect(shop)) as file, file:
        file.execute("DROP TABLE oncekey_records")
        file.execute("DROP TABLE oncekey_schema")
    assert run("ls").exit_code == 2
    assert run("purge").stdout == "2 messages purged\n"


# the audit trail


def test_who_did_what_and_why_is_kept_when_the_record_is_gone(shop, run, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "ann")
    run("resolve", *HELD, "--result", "1", "--reason", "the gateway says it was paid")
    shown = run("show", *HELD).stdout
    assert "resolved as completed by ann@" in shown
    assert ": the gateway says it was paid\n" in shown
    (done,) = json.loads(run("show", *HELD, "--json").stdout)["by_hand"]
    assert "by ann@" in done["done"]
    run("forget", *HELD, "--reason", "tried in staging")
    told = [json.loads(line) for line in run("audit", "--json").stdout.splitlines()]
    assert [(one["action"], one["was"], one["became"]) for one in told] == [
        ("forget", "completed", None),
        ("resolve", "held", "completed"),
    ]
    assert {one["name"] for one in told} == {*HELD}
    assert all(one["by"].startswith("ann@") for one in told)
    assert [one["reason"] for one in told] == ["tried in staging", "the gateway says it was paid"]
    assert len(run("audit", *HELD).stdout.splitlines()) == 2
    assert run("audit", "another").stderr == "nothing was done by hand\n"
    hidden = run("audit", "--redact").stdout
    assert "ann" not in hidden
    assert "charge" not in hidden
    assert "staging" not in hidden


def test_a_purge_by_hand_is_kept_too(shop, run):
    once = Once(url_of(shop), observers=())
    once.options(ttl="1ms").run("short", lambda: 1)
    until(lambda: once.get("short") is None)
    assert run("purge", "--grace", "0", "--reason", "space").exit_code == 0
    once.close()
    (told,) = [json.loads(line) for line in run("audit", "--json").stdout.splitlines()]
    assert (told["action"], told["count"], told["reason"]) == ("purge", 2, "space")
    assert run("audit").stdout.split("  ")[1] == "2 records"


def test_an_import_that_fails_on_the_way_is_kept_with_what_it_has_restored(shop, run):
    assert run("export", "records.jsonl").exit_code == 0
    first, *_ = Path("records.jsonl").read_bytes().splitlines(keepends=True)
    Path("half.jsonl").write_bytes(first + b"no line of an export\n")
    other = ("--store", "sqlite:///other.db")
    assert run("migrate", *other).exit_code == 0
    assert run("import", "half.jsonl", "--reason", "moved", *other).exit_code == 2
    (told,) = [json.loads(line) for line in run("audit", "--json", *other).stdout.splitlines()]
    assert (told["action"], told["count"], told["reason"]) == ("import", 1, "moved")


def test_only_what_was_done_is_kept(shop, run):
    assert run("resolve", "import:42", "--retry").exit_code == 1
    assert run("forget", *HELD).exit_code == 3
    assert run("audit", "--json").stdout == ""
