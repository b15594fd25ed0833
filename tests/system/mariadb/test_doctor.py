"""What the doctor finds on a MariaDB, in both colours."""

import asyncio

import pytest

from oncekey import doctor
from oncekey.stores import AsyncMySQLStore, MySQLStore
from tests.system.mariadb.server import serving


@pytest.fixture(params=["blocking", "coroutines"])
def findings(request):
    """The findings about a store at a URL, by check."""

    def found(url):
        if request.param == "blocking":
            told = doctor.examine(MySQLStore(url))
        else:
            told = asyncio.run(doctor.examine_async(AsyncMySQLStore(url)))
        return {one.check: one for one in told}

    return found


def test_a_server_as_it_should_be(mariadb, url, findings):
    mariadb.say("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    found = findings(url)
    assert {one.severity for one in found.values()} == {"fine"}
    names = {"server", "commit", "tables", "held", "backlog", "clock"}
    assert {f"mysql.{name}" for name in names} <= set(found)


def test_a_database_without_tables_stays_so(mariadb, new_url, findings):
    assert findings(new_url)["mysql.tables"].evidence == "no oncekey_records"
    name = new_url.rpartition("/")[2]
    assert mariadb.say(f"SHOW TABLES FROM {name}") == ()


@pytest.mark.parametrize(("value", "severity"), [(0, "danger"), (2, "warning")])
def test_commits_that_do_not_wait_for_the_disk(mariadb, url, findings, value, severity):
    mariadb.say(f"SET GLOBAL innodb_flush_log_at_trx_commit = {value}")
    found = findings(url)["mysql.commit"]
    mariadb.say("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    assert (found.severity, found.evidence) == (severity, f"innodb_flush_log_at_trx_commit={value}")


def test_what_loses_records_is_found(findings):
    with serving("--log-bin=log", "--sync-binlog=0", "--skip-innodb-doublewrite") as server:
        name = server.new_database()
        store = MySQLStore(server.url(name))
        store.get(None, "the schema")
        store.close()
        server.say("ALTER TABLE oncekey_audit ENGINE = MyISAM", database=name)
        server.say("SET GLOBAL read_only = 1")
        found = findings(server.url(name))
    assert found["mysql.binlog"].severity == "warning"
    assert found["mysql.doublewrite"].severity == "warning"
    assert found["mysql.tables"].severity == "danger"
    assert "oncekey_audit=MyISAM" in found["mysql.tables"].evidence
    assert found["mysql.server"].severity == "danger"
    assert "read-only" in found["mysql.server"].meaning
