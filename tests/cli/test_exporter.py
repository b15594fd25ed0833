"""`oncekey exporter`: Prometheus asks it for the numbers of the store."""

import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest

from oncekey import Once
from oncekey.cli.exporter import _answering
from oncekey.outbox import Outbox
from tests.cli.shop import open_shop


@contextmanager
def served(url, outbox=None):
    once = Once(url, observers=())
    with ThreadingHTTPServer(("127.0.0.1", 0), _answering(once.store, outbox)) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            once.close()


def test_the_numbers_are_those_of_the_moment(tmp_path):
    path = tmp_path / "oncekey.db"
    open_shop(path)
    with served(f"sqlite:///{path}") as url:
        with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - our own
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "\noncekey_held_records 1\n" in text
        assert "charge" not in text
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/")  # noqa: S310 - our own


def test_the_outbox_of_a_database_is_exported_beside_the_store(tmp_path):
    path = tmp_path / "oncekey.db"
    open_shop(path)
    outbox = f"sqlite:///{tmp_path / 'shop.db'}"
    with served(f"sqlite:///{path}", outbox) as url:
        assert "oncekey_outbox" not in text_of(url)  # there is none, and none is made
        assert not (tmp_path / "shop.db").exists()
        Outbox(outbox).migrate()
        text = text_of(url)
        assert "\noncekey_held_records 1\n" in text
        assert '\noncekey_outbox_messages{status="pending"} 0\n' in text


def text_of(url):
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - our own
        return answer.read().decode()


def test_what_can_have_no_outbox_is_said(shop, run):
    done = run("exporter", "--outbox", "redis://localhost")
    assert done.exit_code == 2
    assert "an outbox needs PostgreSQL, MySQL, MariaDB or SQLite" in done.stderr


def test_a_port_that_is_taken_is_said(shop, run):
    with ThreadingHTTPServer(("127.0.0.1", 0), _answering(None, None)) as taken:
        done = run("exporter", "--port", str(taken.server_port))
    assert done.exit_code == 2
    assert "--port 0 takes a free port" in done.stderr
    assert run("exporter", "--store", "sqlite:///nowhere.db").exit_code == 2
