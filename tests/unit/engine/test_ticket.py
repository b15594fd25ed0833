"""Nonces: no two claims have the same, in whatever thread or process they are made."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from oncekey.engine import ticket
from oncekey.engine.ticket import new_nonce

MANY = 3 * ticket._MANY


def test_a_nonce_is_sixteen_hex_digits():
    assert len(new_nonce()) == 16
    assert int(new_nonce(), 16) >= 0


def test_no_two_are_equal_in_any_number_of_threads():
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_nonce(), range(50 * MANY)))
    assert len(set(made)) == len(made)


SCRIPT = f"""
import os, sys
from oncekey.engine.ticket import new_nonce

new_nonce()  # there is a stock now, and a child gets a copy of it
inlet, outlet = os.pipe()
child = os.fork()
if not child:
    os.write(outlet, " ".join(new_nonce() for _ in range({MANY})).encode())
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
theirs = set(os.read(inlet, 1 << 20).decode().split())
assert len(theirs) == {MANY}
assert theirs.isdisjoint(new_nonce() for _ in range({MANY}))
print("apart")
"""


def test_no_nonce_is_used_on_both_sides_of_a_fork():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=os.environ
    )
    assert (done.returncode, done.stdout.strip()) == (0, "apart"), done.stderr
