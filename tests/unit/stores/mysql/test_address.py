"""URLs of MySQL stores: what is refused before anything is opened."""

import pytest

from oncekey.errors import ConfigurationError
from oncekey.stores import AsyncMySQLStore, MySQLStore, open_store

both = pytest.mark.parametrize("kind", [MySQLStore, AsyncMySQLStore])


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_a_url_names_the_store(scheme):
    store = open_store(f"{scheme}://us%40er:p%2Fw%C3%A9@db.example:3307/app")
    assert isinstance(store, MySQLStore)
    assert store.target.where == "db.example:3307/app"
    assert store.target.options == {
        "host": "db.example",
        "port": 3307,
        "user": "us@er",
        "password": "p/wé".encode(),
        "database": "app",
    }


def test_a_socket_may_stand_for_a_host():
    target = MySQLStore("mysql://me@localhost/app?unix_socket=/run/mysqld.sock").target
    assert target.options["unix_socket"] == "/run/mysqld.sock"
    assert target.where == "/run/mysqld.sock/app"


@both
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://localhost", "write mysql://user@host:3306/database"),
        ("mysql://localhost/", "write mysql://user@host:3306/database"),
        ("mysql://localhost/a/b", "write mysql://user@host:3306/database"),
        ("postgresql://localhost/a", "write mysql://user@host:3306/database"),
        ("mysql://localhost:99999/a", "the port"),
        ("mysql://localhost/a?charset=latin1", "unknown options (charset)"),
        ("mysql://localhost/a?ssl_ca=/nowhere.pem", "ssl_ca=/nowhere.pem cannot be read"),
        ("mysql://me:se/cret@localhost/a", "can be read in more than one way"),
        (7, "but it got int"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence(kind, url, words):
    with pytest.raises(ConfigurationError) as refused:
        kind(url)
    assert words in str(refused.value)
    assert "cret" not in str(refused.value)


@both
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size must be a number of connections"),
        ({"size": True}, "size must be a number of connections"),
        ({"patience": "soon"}, "patience"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_a_wrong_option_is_refused(kind, options, words):
    with pytest.raises(ConfigurationError, match=words):
        kind("mysql://localhost/app", **options)
