"""The switch does what it says: in one process, with workers, and in what they start."""

import os
from pathlib import Path

import pytest

from tests.heavy import HEAVY
from tests.without_fast_paths import sitecustomize as switch
from tests.without_fast_paths.plugin import reason_of

ROOT = Path(__file__).parents[2]
SWITCH = Path(__file__).parent

OPENS_ALL = """
import subprocess, sys
import pytest
from oncekey import Once
from oncekey.stores import (
    AsyncPostgresStore, AsyncRedisStore, PostgresStore, RedisStore, SQLiteStore, open_store,
)
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.client import AsyncClients

REDIS, POSTGRES = "redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/none"

def slow(store):
    clients = getattr(store, "clients", None)
    if clients is not None:
        return not clients._fast
    target = getattr(store, "target", None)
    return not (store.fast if target is None else target.fast)

@pytest.mark.parametrize("url", [REDIS, POSTGRES, "sqlite:///here.db"])
def test_every_way_to_open_a_store_is_slow(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    once = Once(url)
    assert slow(open_store(url)) and slow(once.core.given)
    assert slow(once.core.store_async if "sqlite" not in url else once.core.store)
    assert once.core.cache is None

def test_every_store_is_slow(tmp_path):
    assert slow(RedisStore.from_url(REDIS)) and slow(AsyncRedisStore.from_url(REDIS))
    assert slow(PostgresStore(POSTGRES)) and slow(AsyncPostgresStore(POSTGRES))
    assert slow(SQLiteStore(tmp_path / "a.db"))
    assert not Clients.of_url(REDIS)._fast and not AsyncClients.of_url(REDIS)._fast

def test_a_child_is_slow_too():
    code = f"from oncekey.stores import open_store; print(open_store({REDIS!r}).clients._fast)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\\n"
"""

IS_ABOUT_ONE = """
import pytest
from oncekey.engine.cache import Cache

@pytest.mark.fast_path("what a cache does")
def test_a_cache():
    Cache(100)
"""

TAKES_ONE_UNSEEN = """
import subprocess, sys
from contextlib import suppress

def test_it():
    with suppress(Exception):
        from oncekey.stores import RedisStore
        RedisStore.from_url("redis://127.0.0.1:1/0", fast=True)

def test_a_child():
    code = "from oncekey import Once; Once('memory://', cache=True)"
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
"""

SAYS_NO_REASON = """
import pytest

@pytest.mark.fast_path
def test_it():
    pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs modules under the switch, in a process of its own and without those of ours."""
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", switch.LEDGER):
        monkeypatch.delenv(name, raising=False)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kept = [str(ROOT), *(path for path in paths if Path(path) != SWITCH)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(kept))

    def run(*options, **modules):
        pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text("utf-8"))
        pytester.makeini("[pytest]\nmarkers =\n    row(*ids): rows\naddopts = --strict-markers\n")
        pytester.makepyfile(**modules)
        return pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "--without-fast-paths", *options
        )

    return run


WAYS = {"one process": "-n0", "workers": "-n1"} if HEAVY else {"one process": "-n0"}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_under_it_no_store_has_a_fast_path(run, way):
    result = run(way, test_all=OPENS_ALL, test_about=IS_ABOUT_ONE)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "* stores in 2 processes: * AsyncPostgresStore, * SQLiteStore",
            "1 tests left out, which are about a fast path:",
            "*1 what a cache does",
            "*5 passed*",
        ]
    )


def test_whoever_takes_one_all_the_same_fails_the_run(run):
    """Though its error was swallowed, or happened in a child."""
    result = run(test_sly=TAKES_ONE_UNSEEN)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "FAST PATH TAKEN: Lines was made by process * in test_sly.py::test_it",
            "FAST PATH TAKEN: Cache was made by process * in test_sly.py::test_a_child",
            "*2 passed*",
        ]
    )


def test_a_mark_has_a_reason(pytester):
    pytester.makeini("[pytest]\nmarkers =\n    fast_path(reason): as here\n")
    item = pytester.getitem(SAYS_NO_REASON, "test_it")
    with pytest.raises(pytest.UsageError, match="test_it: write why"):
        reason_of(item)
