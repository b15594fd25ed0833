"""What a process does that gevent or eventlet has patched; the tests start it with one errand."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.patched import patch

LIBRARY, ERRAND, *FACTS = sys.argv[1:]


def silence(url: str) -> None:
    """Call a server that stands still, and say how the call ended."""
    from oncekey import Once, StoreError

    once = Once(f"{url}?socket_timeout=0.2")
    said = None
    while said != "done":  # a busy machine may take longer than the time-out
        with suppress(StoreError):
            said = once.run("first", lambda: "done")
    say("ready")
    sys.stdin.readline()
    try:
        once.run("second", lambda: "done")
    except StoreError:
        say("refused")


def company(url: str, pid: str) -> None:
    """Call a server that stands still until another greenlet wakes it."""
    from oncekey import Once
    from tests.patience import PATIENCE

    once = Once(f"{url}?socket_timeout={PATIENCE}")
    once.run("first", lambda: "done")
    called = threading.Event()

    def wake() -> None:
        called.wait()
        os.kill(int(pid), signal.SIGCONT)

    other = threading.Thread(target=wake)
    other.start()
    os.kill(int(pid), signal.SIGSTOP)
    called.set()  # the other greenlet runs as soon as this one waits for the server
    say(once.run("second", lambda: "answered"))
    other.join()


def lock(url: str) -> None:
    """Claim in a table of PostgreSQL that another greenlet has locked, until it lets go."""
    import psycopg

    from oncekey import Once

    once = Once(url)
    once.run("first", lambda: "done")
    called = threading.Event()
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE oncekey_records")

        def let_go() -> None:
            called.wait()
            holder.commit()

        other = threading.Thread(target=let_go)
        other.start()
        called.set()
        say(once.run("second", lambda: "answered"))
        other.join()


def late() -> None:
    """Patch when everything has been imported, and say why it is refused."""
    from oncekey import ConfigurationError, Once

    patch(LIBRARY)
    try:
        Once("memory://").run("first", lambda: "done")
    except ConfigurationError as error:
        say(str(error))


def postgres() -> None:
    """Use PostgreSQL, and say why it is refused."""
    from oncekey import ConfigurationError, Once

    try:
        Once("postgresql://127.0.0.1/nowhere")
    except ConfigurationError as error:
        say(str(error))


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if ERRAND != "late":
        patch(LIBRARY)
    errands: list[Callable[..., None]] = [silence, company, lock, late, postgres]
    next(errand for errand in errands if errand.__name__ == ERRAND)(*FACTS)
