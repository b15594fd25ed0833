"""watch for programs, migrate, completion, and the stores that have servers."""

import json
import signal
import sqlite3
import subprocess
from contextlib import closing

import psycopg
import pytest

from oncekey import Once, StoreError
from oncekey.cli import watch as watch_command
from oncekey.cli.watch import Watcher
from oncekey.inspection.listing import list_records
from oncekey.stores import PostgresStore, RedisStore
from oncekey.stores.browse import RecordQuery
from oncekey.stores.postgres import browse, schema
from tests.cli.page import environment
from tests.cli.shop import url_of
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = ["another_redis", "empty_redis", "postgres", "postgres_url", "redis_server"]


def lines(done):
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# watch


def test_watch_prints_a_line_for_each_look(shop, run):
    first, second = lines(run("watch", "--json", "--count", "2", "--every", "1ms"))
    assert (first["total"], first["exact"], first["new"]) == (5, True, None)
    assert second["new"] == 0
    assert [record["name"] for record in first["records"]][:2] == ["report:11", "import:42"]
    (held,) = lines(run("watch", "--json", "--count", "1", "--status", "held"))
    assert [record["key"] for record in held["records"]] == ["charge:1043"]


def test_watch_ends_at_ctrl_c(shop, folder):
    watching = subprocess.Popen(
        ["oncekey", "watch", "--json", "--every", "10ms"],  # noqa: S607 - beside this interpreter
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["total"] == 5
    watching.send_signal(signal.SIGINT)
    _, words = watching.communicate(timeout=PATIENCE)
    assert (watching.returncode, words) == (0, b"")


def test_watch_tells_what_is_wrong_and_goes_on(another_redis, capsys):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    Once(store, observers=()).run("first", lambda: 1)
    watch = Watcher(store, None)
    views = watch_command._views(watch, watch.view(5), 0.001, lambda: 5)
    assert len(next(views).records) == 1
    server.stop()
    trouble = next(views)
    assert isinstance(trouble, StoreError)
    watch_command._print(trouble, redact=False)
    assert "127.0.0.1" in json.loads(capsys.readouterr().out)["error"]
    server.start()
    assert next(views).records == []  # it kept nothing
    store.close()


def test_watch_walks_over_a_store_without_an_order_of_time(empty_redis):
    store = RedisStore.from_url(empty_redis.url)
    once = Once(store, observers=(), cache=False)
    for number in range(300):
        once.run(f"key-{number}", lambda: 1)
    watch = Watcher(store, None)
    view = watch.view(3)
    assert view.complete
    assert [record.key for record in view.records] == ["key-299", "key-298", "key-297"]
    once.forget("key-299")
    once.run("newest", lambda: 1)
    keys = [record.key for record in watch.view(3).records]
    assert keys == ["newest", "key-298", "key-297"]
    assert Watcher(store, "held").view(3).records == []
    store.close()


# migrate


def test_migrate_makes_a_file_and_says_so(folder, run):
    done = run("migrate")
    assert done.stdout == "made the tables in oncekey.db, schema 1\n"
    assert run("migrate").stdout == "everything is up to date\n"
    assert run("ls").stderr == "no records\n"
    assert lines(run("migrate", "--json")) == [{"done": "everything is up to date"}]


def test_migrate_puts_tables_into_a_file_of_others_when_it_is_told_to(folder, run):
    path = folder / "theirs.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE theirs (id)")
    assert "`oncekey migrate` makes the tables" in run("ls", "--store", url_of(path)).stderr
    assert run("migrate", "--store", url_of(path)).exit_code == 0
    assert run("ls", "--store", url_of(path)).exit_code == 0


def test_migrate_cannot_make_a_file_where_no_file_can_be(folder, run):
    done = run("migrate", "--store", "sqlite:///no/such/folder.db")
    assert done.exit_code == 2
    assert "needs its folder" in done.stderr


def test_held_records_are_found_by_the_index(shop, run):
    before = run("ls", "--status", "held").stdout
    with closing(sqlite3.connect(shop)) as file:
        file.execute("DROP INDEX oncekey_records_held")
    assert run("migrate").stdout == "made the index oncekey_records_held\n"
    assert run("ls", "--status", "held").stdout == before
    assert run("ls", "--status", "held", "--older", "1d").stdout == ""


def test_a_database_without_our_tables_is_not_changed_by_looking(postgres_url, run):
    done = run("ls", "--store", postgres_url)
    assert done.exit_code == 2
    assert "holds no records of oncekey" in done.stderr
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT to_regclass('oncekey_schema')").fetchone()
    assert found == (None,)


def test_migrate_brings_a_database_up_to_date(postgres_url, run, monkeypatch):
    assert lines(run("migrate", "--json", "--store", postgres_url)) == [
        {"done": f"made the tables, schema {len(schema.migrations())}"}
    ]
    assert run("migrate", "--store", postgres_url).stdout == "everything is up to date\n"
    Once(postgres_url, observers=()).run("a/b", lambda: 1)
    assert "a%2Fb" in run("ls", "--store", postgres_url).stdout


def test_migrate_brings_an_older_schema_up_to_date(postgres_url, run, monkeypatch):
    run("migrate", "--store", postgres_url)
    known = schema.migrations()
    step = b"UPDATE oncekey_schema SET version = version + 1"
    monkeypatch.setattr(schema, "migrations", lambda: (*known, step))
    done = run("migrate", "--store", postgres_url)
    assert done.stdout == f"brought the schema from {len(known)} to {len(known) + 1}\n"


def test_migrate_makes_missing_and_invalid_indexes(postgres_url, run):
    run("migrate", "--store", postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP INDEX oncekey_records_created")
        connection.execute("DROP INDEX oncekey_records_due")
        connection.execute(
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'oncekey_records_held'::regclass"  # as it is after a cut-off
        )
    assert run("migrate", "--store", postgres_url).stdout.splitlines() == [
        f"made the index {name}" for name in ("oncekey_records_due", *browse.INDEXES)
    ]
    store = PostgresStore(postgres_url)
    assert list_records(store, RecordQuery()).newest_first
    store.close()


def test_migrate_needs_the_owner_and_says_so(postgres_url, run):
    run("migrate", "--store", postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP INDEX oncekey_records_created")
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'reader'")
        connection.execute("GRANT SELECT ON oncekey_records, oncekey_schema TO reader")
    other = postgres_url.replace("postgres:", "reader:", 1)
    user, _, place = other.partition("@")
    done = run("migrate", "--store", f"{user.rpartition(':')[0]}:reader@{place}")
    assert done.exit_code == 2
    assert "let the owner of the database" in done.stderr


def test_redis_has_no_tables(empty_redis, run):
    done = run("migrate", "--store", empty_redis.url)
    assert (done.exit_code, done.stdout) == (0, "everything is up to date\n")


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_every_command_works_on_servers(kind, request, run):
    if kind == "redis":
        url = request.getfixturevalue("empty_redis").url
    else:
        url = request.getfixturevalue("postgres_url")
    once = Once(url, observers=(), scope="s/1").options(on_crash="hold", heartbeat=False)
    once.run("done", lambda: {"id": 7})
    with pytest.raises(TimeoutError), once.attempt("held"):
        raise TimeoutError
    once.close()
    run_here = lambda *arguments: run("--store", url, *arguments)  # noqa: E731 - shorter
    assert sorted(one["name"] for one in lines(run_here("ls", "--json"))) == [
        "s%2F1/done",
        "s%2F1/held",
    ]
    assert '{"id": 7}' in run_here("show", "s%2F1/done", "--result").stdout
    assert lines(run_here("stats", "--json"))[0]["by_status"]["held"] == 1
    assert lines(run_here("watch", "--json", "--count", "1"))[0]["total"] == 2
    assert run_here("resolve", "s%2F1/held", "--retry").exit_code == 0
    assert run_here("forget", "done", "--scope", "s/1").exit_code == 0
    assert run_here("purge", "--grace", "0").stdout == "0 records purged\n"
    assert [one["status"] for one in lines(run_here("ls", "--json"))] == ["released"]


# Completion


def completed(oncekey, *words, **settings):
    typed = " ".join(["oncekey", *words])
    done = oncekey(
        _ONCEKEY_COMPLETE="complete_bash",
        COMP_WORDS=typed,
        COMP_CWORD=str(len(words)),
        **settings,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_shell_is_offered_statuses_and_keys(shop, oncekey):
    assert completed(oncekey, "ls", "--status", "he") == ["held"]
    assert completed(oncekey, "show", "billing/") == [
        "billing/charge:1043",
        "billing/charge:1042",
        "billing/charge:1041",
    ]
    assert completed(oncekey, "show", "r", ONCEKEY_STORE="sqlite:///nothing.db") == []
