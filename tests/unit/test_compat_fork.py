"""What must not cross a fork is made new in the child."""

import gc
import os
import subprocess
import sys
import weakref

from oncekey import compat
from oncekey.compat import generation, leave_alone, renew_after_fork


class Thing:
    def __init__(self):
        self.renewed = 0

    def after_fork(self):
        self.renewed += 1


def test_every_registered_thing_is_made_new(monkeypatch):
    monkeypatch.setattr(compat, "_registered", type(compat._registered)())
    before = generation()
    monkeypatch.setattr(compat._Process, "generation", before)
    one, other = Thing(), Thing()
    renew_after_fork(one)
    renew_after_fork(other)
    renew_after_fork(one)
    compat._in_child()
    assert (one.renewed, other.renewed) == (1, 1)
    assert generation() == before + 1


def test_a_thing_is_not_kept_alive(monkeypatch):
    monkeypatch.setattr(compat, "_registered", type(compat._registered)())
    renew_after_fork(Thing())
    gc.collect()
    assert not list(compat._registered)


SCRIPT = """
import os
from oncekey.compat import generation, leave_alone, renew_after_fork

class Thing:
    renewed = 0
    def after_fork(self):
        self.renewed += 1

def fork():
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    return not child

thing = Thing()
renew_after_fork(thing)
assert generation() == 0
if fork():
    assert (generation(), thing.renewed) == (1, 1)
    if fork():
        assert (generation(), thing.renewed) == (2, 2)
    os._exit(0)
assert (generation(), thing.renewed) == (0, 0)
"""


def test_a_forked_child_is_another_generation():
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_what_is_left_alone_is_not_closed_by_python_either():
    closed = []
    thing = Thing()
    weakref.finalize(thing, closed.append, True)
    leave_alone(thing)
    del thing
    gc.collect()
    assert not closed
    assert type(compat._left_alone.pop()) is Thing
