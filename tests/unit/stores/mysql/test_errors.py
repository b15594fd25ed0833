"""What an error of a driver says about whether the verb happened."""

import subprocess
import sys

import pytest
from pymysql.err import InterfaceError, InternalError, OperationalError, ProgrammingError

from oncekey.errors import StoreAccessError, StoreError
from oncekey.stores.mysql.errors import (
    explain,
    explain_connect,
    explain_preparing,
    pause_after,
    schema_is_gone,
)


@pytest.mark.parametrize(
    ("error", "happened", "words"),
    [
        (OperationalError(2013, "Lost connection during query"), None, "was lost before"),
        (OperationalError(2006, "gone away"), None, "was lost before"),
        (InterfaceError(0, "Not connected"), None, "was lost before"),
        (ConnectionResetError(104, "reset"), None, "was lost before"),
        (InternalError("Packet sequence number wrong"), None, "was lost before"),
        (OperationalError(1317, "Query execution was interrupted"), None, "may have happened"),
        (OperationalError(1180, "Got error during COMMIT"), None, "may have happened"),
        (OperationalError(1213, "Deadlock found"), False, "gave the statement up"),
        (OperationalError(1205, "Lock wait timeout exceeded"), False, "gave the statement up"),
        (OperationalError(1290, "read_only is on"), False, "is read-only"),
        (OperationalError(1142, "command denied"), False, "the user may not do this"),
        (ProgrammingError(1146, "no such table"), False, "refused the statement"),
        (InternalError(1406, "Data too long"), False, "refused the statement"),
    ],
)
def test_an_error_tells_whether_the_verb_happened(error, happened, words):
    told = explain(error, "db:3306/app")
    assert told.happened is happened
    assert words in str(told)


def test_only_silence_says_that_the_server_is_unreachable():
    assert explain(TimeoutError("it said nothing for 5 seconds"), "db").unreachable
    assert explain(OperationalError(2013, "Lost connection (timed out)"), "db").unreachable
    assert not explain(OperationalError(2013, "Lost connection"), "db").unreachable


def test_what_failed_before_a_verb_was_sent_did_not_happen():
    refused = explain_connect(OperationalError(1045, "Access denied for user"), "db")
    assert (type(refused), refused.happened) == (StoreAccessError, False)
    gone = explain_connect(OperationalError(2003, "Can't connect"), "db")
    assert (type(gone), gone.happened, gone.unreachable) == (StoreError, False, True)
    lost = explain_preparing(OperationalError(2013, "Lost connection"), "db")
    assert (lost.happened, lost.unreachable) == (False, True)
    denied = explain_preparing(OperationalError(1142, "CREATE command denied"), "db")
    assert type(denied) is StoreAccessError


@pytest.mark.parametrize("number", [1205, 1213])
def test_a_statement_that_lost_to_another_one_is_tried_again(number):
    assert 0 <= pause_after(OperationalError(number, "try again"), 0.01) <= 0.01


def test_any_other_error_is_raised_at_once():
    with pytest.raises(OperationalError, match="Lost connection"):
        pause_after(OperationalError(2013, "Lost connection"), 0.01)


def test_a_database_that_was_made_again_is_migrated_again():
    assert schema_is_gone(ProgrammingError(1146, "no such table"))
    assert schema_is_gone(OperationalError(1305, "no such procedure"))
    assert not schema_is_gone(OperationalError(1213, "Deadlock found"))


def test_errors_are_known_where_django_has_loaded_the_driver_a_second_time():
    """`install_as_MySQLdb` gives the driver another name, under which Django imports its parts."""
    code = (
        "import pymysql; pymysql.install_as_MySQLdb(); import MySQLdb.converters;"
        "assert pymysql.err is not pymysql.connections.err;"
        "from oncekey.stores.mysql.drivers import FAILURES;"
        "assert issubclass(pymysql.connections.err.OperationalError, FAILURES)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
