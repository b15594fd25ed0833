"""What a call costs a redis-server, counted in instructions of the processor.

`python -m bench.instructions` runs redis-server under callgrind, which valgrind brings, and prints
how many instructions it takes for one claim, one settle, one duplicate and one plain SET. What a
call costs its own process: `make bench-where`. With PYTHONPATH set to the `src` of another tree it
counts those of that tree.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from bench.subject import new_order
from oncekey.core.requests import Claim, Settle
from oncekey.stores import RedisStore
from tests.patience import PATIENCE
from tests.servers.ports import free_port
from tests.servers.redis import program

_CALLS: Final = 1000
_HANDLES: Final = re.compile(r"^\s*([\d,]+) .*:processInputBuffer ", re.MULTILINE)
"""All that the server does for a command, but for the system calls."""


def main() -> None:
    """Print the table."""
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed; it counts the instructions")
    nothing = _counted(lambda _client, _store: None)
    for title, work in {"plain SET with an expiry": _sets, **_VERBS}.items():
        before = nothing if title not in _AFTER else _counted(_VERBS[_AFTER[title]])
        print(f"{title}: {(_counted(work) - before) / _CALLS:,.0f}")


def _counted(work: Callable[[Any, RedisStore], None]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        port, out = free_port(), Path(folder) / "out"
        grind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        server = [program(), "--port", str(port), "--save", "", "--hz", "1"]
        process = subprocess.Popen(
            [*grind, *server], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with redis.Redis(port=port) as client:
            _await(client)
            store = RedisStore(client)
            work(client, store)
            client.shutdown(nosave=True)
        process.wait(PATIENCE)
        read = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(out)]
        told = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    found = _HANDLES.search(told)
    assert found is not None, "the server has no symbols"
    return int(found[1].replace(",", ""))


def _await(client: Any) -> None:
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            assert time.monotonic() < give_up, "redis-server did not start"
            time.sleep(0.1)
        else:
            return


def _sets(client: Any, _store: RedisStore) -> None:
    for _ in range(_CALLS):
        client.set(new_order(), b"running", nx=True, px=300_000)


def _claim(key: str) -> Claim:
    return Claim(
        "bench",
        key,
        nonce="0123456789abcdef",
        fingerprint="1:" + "a" * 64,
        lease=300_000_000,
        ttl=86_400_000_000,
        label="receipt",
    )


def _settle(store: RedisStore, key: str) -> None:
    store.settle(
        Settle(
            "bench",
            key,
            token=store.claim(_claim(key)).record.token,
            nonce="0123456789abcdef",
            status="completed",
            result=b"receipt of an order over 40",
            error=None,
            ttl=86_400_000_000,
        )
    )


def _claims(_client: Any, store: RedisStore) -> None:
    for _ in range(_CALLS):
        store.claim(_claim(new_order()))


def _settles(_client: Any, store: RedisStore) -> None:
    for _ in range(_CALLS):
        _settle(store, new_order())


def _duplicates(_client: Any, store: RedisStore) -> None:
    key = new_order()
    _settle(store, key)
    for _ in range(_CALLS):
        store.claim(_claim(key))


_VERBS: Final = {"a claim": _claims, "a settle": _settles, "a duplicate": _duplicates}
_AFTER: Final = {"a settle": "a claim"}
"""What was done before, and is taken off."""


if __name__ == "__main__":
    main()
