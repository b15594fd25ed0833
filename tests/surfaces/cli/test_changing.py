"""forget, resolve and purge: what is true afterwards, and what they leave alone."""

import pytest
from msgspec.structs import replace

from oncekey import Once, RememberedError
from tests.surfaces.cli.shop import url_of

HELD = ("charge:1043", "--scope", "billing")


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
    assert (done.exit_code, done.stdout) == (0, "'charge:1043' in 'billing' is failed\n")
    with pytest.raises(RememberedError, match="the bank refused") as caught:
        once.options(scope="billing").run("charge:1043", lambda: 1)
    assert caught.value.type_name == "ResolvedByHandError"


def test_resolve_with_retry_lets_the_next_call_run_with_the_notes(once, run):
    assert run("resolve", *HELD, "--retry").stdout == "'charge:1043' in 'billing' is released\n"
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
    get, seen = Once.get, []

    def completed_at_first(self, key, **where):
        record = get(self, key, **where)
        assert record is not None
        seen.append(record)
        return replace(record, status="completed") if len(seen) == 1 else record

    monkeypatch.setattr(Once, "get", completed_at_first)
    done = run("forget", "report:11")
    assert done.exit_code == 3
    assert "'report:11' is running; with --force" in done.stderr


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
