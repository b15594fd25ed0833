"""Calls of greenlets: gevent and eventlet patch Python, and a server that stands still."""

import os
import signal

import pytest

from tests.still import standing_still

LIBRARIES = ("gevent", "eventlet")


@pytest.fixture
def process(spawn_of, until):
    """Starts a patched process, and says what it printed when it has ended."""

    class Process:
        def start(self, library, errand, *facts):
            self._worker = spawn_of("tests.faults.greenlets", library, errand, *map(str, facts))
            return self._worker

        def said(self):
            until(lambda: self._worker.process.poll() is not None)
            return self._worker.output()

    return Process()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_server_that_stands_still_is_given_up(library, process, another_redis):
    server = another_redis()
    worker = process.start(library, "silence", server.url)
    worker.until("ready")
    with standing_still(server):
        worker.process.stdin.write("go\n")
        worker.process.stdin.flush()
        assert process.said() == "refused"


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_greenlets_go_on_while_one_waits_for_the_server(library, process, another_redis):
    server = another_redis()
    process.start(library, "company", server.url, server.process.pid)
    try:
        assert process.said() == "answered"
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def test_other_greenlets_go_on_while_one_waits_for_postgres(process, empty_postgres_url):
    process.start("gevent", "lock", empty_postgres_url)
    assert process.said() == "answered"


@pytest.mark.parametrize("library", LIBRARIES)
def test_who_patches_after_the_import_is_told_so(library, process):
    process.start(library, "late")
    assert process.said() == (
        "gevent or eventlet has patched Python after oncekey was imported, so that its locks "
        "would block for ever; patch first, before any other import"
    )


def test_postgres_is_refused_with_eventlet(process):
    process.start("eventlet", "postgres")
    assert process.said() == (
        "psycopg cannot wait with eventlet, and each statement would block all green threads; "
        "use gevent or threads, or a store in Redis"
    )
