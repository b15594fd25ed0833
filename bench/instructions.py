"""What a call costs, counted in instructions of the processor: the same on a busy machine.

`python -m bench.instructions` runs redis-server under callgrind, which valgrind brings, and prints
how many instructions it takes for one claim, one settle, one duplicate and one plain SET. Then it
runs protected calls of a function on a SQLite file, and prints how many one with a new key takes.
With PYTHONPATH set to the `src` of another tree it counts those of that tree.
"""

from __future__ import annotations

import os
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
_FEW_AND_MANY: Final = (100, 400)
_COLLECTED: Final = re.compile(r"Collected : (\d+)")
_PROGRAM: Final = """
import gc, os, sys
from oncekey import Once
once = Once(sys.argv[1])
@once("charge:{order}")
def charge(order: int) -> int:
    return order
gc.disable()
for order in range(int(sys.argv[2])):
    charge(order)
os._exit(0)
"""
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
    few, many = (_counted_calls(number) for number in _FEW_AND_MANY)
    print(f"a call on SQLite: {(many - few) / (_FEW_AND_MANY[1] - _FEW_AND_MANY[0]):,.0f}")


def _counted_calls(number: int) -> int:
    """Count the instructions of a process that makes so many calls."""
    with tempfile.TemporaryDirectory() as folder:
        grind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        made = [sys.executable, "-c", _PROGRAM, f"sqlite:///{folder}/once.db", str(number)]
        told = subprocess.run(
            [*grind, *made],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
    found = _COLLECTED.search(told.stderr)
    assert found is not None, told.stderr
    return int(found[1])


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
