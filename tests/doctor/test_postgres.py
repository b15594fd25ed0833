"""What the doctor finds on a real PostgreSQL, and on one that will not tell."""

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from oncekey import Once
from oncekey.doctor import examine, examine_async
from oncekey.doctor.examination import Refused, conduct
from oncekey.doctor.postgres import (
    CLOCK,
    EXPIRED,
    HELD,
    INDEXES,
    MAY_COUNT,
    RECOVERY,
    REPLICAS,
    SETTINGS,
    TABLE,
    VALID,
    examination,
)
from oncekey.errors import ConfigurationError, StoreError
from oncekey.stores import AsyncPostgresStore, PostgresStore
from tests.servers.postgres_fixtures import postgres, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.xdist_group("doctor-postgres")  # they share a server that starts slowly


@pytest.fixture
def look(by_check):
    return lambda url: by_check(examine(PostgresStore(url)))


def test_a_server_as_it_comes_is_fine_and_nothing_is_made_by_looking(safe_database, look):
    found = look(safe_database)
    assert {finding.severity for finding in found.values()} == {"fine"}
    assert set(found) == {
        *("postgres.version", "postgres.fsync", "postgres.commit", "postgres.role"),
        *("postgres.replication", "postgres.table", "postgres.clock"),
    }
    assert found["postgres.table"].evidence == "no oncekey_records"
    with psycopg.connect(safe_database) as connection:
        tables = connection.execute("SELECT 1 FROM pg_class WHERE relname LIKE 'oncekey%'")
        assert not tables.fetchall()


@pytest.mark.parametrize(
    ("settings", "check", "severity"),
    [
        ({"synchronous_commit": "off"}, "postgres.commit", "warning"),
        ({"synchronous_commit": "local"}, "postgres.commit", "fine"),
        ({"default_transaction_read_only": "on"}, "postgres.read_only", "danger"),
    ],
)
def test_settings_of_the_database_count(setting, look, settings, check, severity):
    found = look(setting(**settings))[check]
    assert found.severity == severity
    [(name, value)] = settings.items()
    assert found.evidence == f"{name.removeprefix('default_')}={value}"


def test_a_setting_in_the_url_counts_more(setting, look):
    url = setting(synchronous_commit="off")
    found = look(f"{url}?options=-csynchronous_commit%3Don")["postgres.commit"]
    assert (found.severity, found.evidence) == ("fine", "synchronous_commit=on")


def test_a_server_that_does_not_write_is_dangerous(postgres_url, look):  # noqa: F811 - as above
    found = look(postgres_url)
    assert found["postgres.fsync"].severity == "danger"
    assert found["postgres.fsync"].evidence == "fsync=off, full_page_writes=off"
    assert found["postgres.autovacuum"].severity == "warning"


def test_the_table_must_be_logged(safe_database, look):
    store = PostgresStore(safe_database)
    assert store.get(None, "nobody") is None
    store.close()
    assert look(safe_database)["postgres.table"].evidence == "relpersistence=p"
    with psycopg.connect(safe_database, autocommit=True) as connection:
        connection.execute("ALTER TABLE oncekey_records SET UNLOGGED")
    found = look(safe_database)["postgres.table"]
    assert (found.severity, found.evidence) == ("danger", "relpersistence=u")
    assert "SET LOGGED" in found.fix


def test_a_role_that_may_not_count_for_the_charts_is_told(safe_database, look):
    store = PostgresStore(safe_database)
    assert store.get(None, "nobody") is None
    store.close()
    assert "postgres.charts" not in look(safe_database)
    with psycopg.connect(safe_database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS uncounted")
        connection.execute("CREATE ROLE uncounted LOGIN PASSWORD 'pw'")
        connection.execute("GRANT USAGE ON SCHEMA public TO uncounted")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON oncekey_records TO uncounted")
        connection.execute("GRANT SELECT ON oncekey_schema, oncekey_activity TO uncounted")
    role = psycopg.conninfo.make_conninfo(safe_database, user="uncounted", password="pw")  # noqa: S106 - of this test alone
    found = look(role)["postgres.charts"]
    assert (found.severity, "stay empty" in found.meaning) == ("warning", True)
    assert "GRANT SELECT, INSERT, UPDATE ON oncekey_activity" in found.fix
    with psycopg.connect(safe_database, autocommit=True) as connection:
        connection.execute("GRANT INSERT, UPDATE ON oncekey_activity TO uncounted")
    assert "postgres.charts" not in look(role)
    with psycopg.connect(safe_database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY uncounted")
        connection.execute("DROP ROLE uncounted")


def test_a_server_that_is_not_there_is_an_error(safe_database):
    nowhere = psycopg.conninfo.make_conninfo(safe_database, port=1)
    with pytest.raises(StoreError, match="cannot be reached"):
        examine(PostgresStore(nowhere))


# What the caller gave


def test_a_connection_and_a_pool_of_the_caller_are_asked_and_left_as_they_were(safe_database, look):
    wanted = {check: finding.severity for check, finding in look(safe_database).items()}
    with psycopg.connect(safe_database, row_factory=dict_row) as connection:
        found = examine(PostgresStore(connection))
        assert {one.check: one.severity for one in found} == wanted
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        connection.execute("SELECT 1")
        with pytest.raises(ConfigurationError, match="inside a transaction"):
            examine(PostgresStore(connection))
    engine = create_engine(safe_database.replace(":", "+psycopg:", 1))
    assert {one.check for one in examine(PostgresStore(engine))} == {one.check for one in found}
    assert engine.pool.checkedout() == 0
    engine.dispose()
    with ConnectionPool(safe_database, min_size=1, open=True) as pool:
        found = examine(PostgresStore(pool))
        assert {one.check: one.severity for one in found} == wanted


async def test_coroutines_find_the_same(safe_database, look):
    wanted = {check: finding.severity for check, finding in look(safe_database).items()}
    async with (
        AsyncConnectionPool(safe_database, min_size=1, open=False) as pool,
        await psycopg.AsyncConnection.connect(safe_database) as connection,
    ):
        engine = create_async_engine(safe_database.replace(":", "+psycopg:", 1))
        for given in (safe_database, pool, connection, engine):
            store = AsyncPostgresStore(given)
            found = await examine_async(store)
            assert {one.check: one.severity for one in found} == wanted
            await store.aclose()
        await engine.dispose()
        found = await examine_async(PostgresStore(safe_database))
        assert {one.check: one.severity for one in found} == wanted


# What no server here says

HEALTHY = {
    SETTINGS: [("170002", "on", "on", "on", "", "off", "on")],
    RECOVERY: [(False,)],
    REPLICAS: [(0,)],
    TABLE: [(b"p",)],
    VALID: [(name,) for name in INDEXES],
    MAY_COUNT: [(True,)],
    HELD: [(0, None)],
    EXPIRED: [(0,)],
    CLOCK: Refused("not today"),
}


def said(by_check, **instead):
    names = {"settings": SETTINGS, "recovery": RECOVERY, "replicas": REPLICAS, "table": TABLE}
    replies = HEALTHY | {names[name]: reply for name, reply in instead.items()}
    return by_check(conduct(examination(), replies.__getitem__))


def test_a_standby_is_no_store(by_check):
    found = said(by_check, recovery=[(True,)])["postgres.role"]
    assert (found.severity, found.evidence) == ("danger", "pg_is_in_recovery()=true")


@pytest.mark.parametrize(
    ("standbys", "names", "commit", "severity"),
    [
        (0, "", "on", "fine"),
        (1, "", "on", "warning"),
        (1, "one", "on", "fine"),
        (2, "any 1 (a, b)", "remote_apply", "fine"),
        (1, "one", "local", "warning"),
        (1, "one", "remote_write", "warning"),
    ],
)
def test_standbys_that_nobody_waits_for_are_a_warning(by_check, standbys, names, commit, severity):
    settings = [("170002", "on", "on", commit, names, "off", "on")]
    found = said(by_check, settings=settings, replicas=[(standbys,)])["postgres.replication"]
    assert found.severity == severity
    assert f"standbys={standbys}" in found.evidence


def test_an_old_server_is_named(by_check):
    settings = [("130014", "on", "on", "on", "", "off", "on")]
    assert said(by_check, settings=settings)["postgres.version"].severity == "danger"


def test_what_it_will_not_say_is_said(by_check):
    no = Refused("permission denied")
    found = said(by_check, settings=no, recovery=no, replicas=no, table=no)
    assert set(found) == {
        *("postgres.settings", "postgres.role", "postgres.replication", "postgres.table"),
    }
    for finding in found.values():
        assert (finding.severity, finding.evidence) == ("warning", "permission denied")


def test_what_stays_for_long_and_what_is_missing_is_told(safe_database, by_check):
    store = PostgresStore(safe_database)
    once = Once(store, observers=()).options(on_crash="hold")
    with pytest.raises(TimeoutError), once.attempt("held"):
        raise TimeoutError
    found = by_check(examine(store))
    for check in ("indexes", "held", "backlog"):
        assert found[f"postgres.{check}"].severity == "fine"
    with psycopg.connect(safe_database, autocommit=True) as connection:
        connection.execute("UPDATE oncekey_records SET updated = updated - 7200000000")
        assert by_check(examine(store))["postgres.held"].evidence == (
            "held=1, the oldest one for 2 h"
        )
        connection.execute("DROP INDEX oncekey_records_due")
    found = by_check(examine(store))["postgres.indexes"]
    assert (found.severity, found.evidence) == ("warning", "missing=oncekey_records_due")
    store.close()
