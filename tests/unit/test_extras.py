"""Who lacks a package is told what to install, wherever it is first needed."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

from oncekey import ConfigurationError
from oncekey.extras import needing

FRONTS = {
    "oncekey.http.aiohttp": ("aiohttp", "aiohttp"),
    "oncekey.http.apispec": ("apispec", "apispec"),
    "oncekey.http.client": ("httpx", "http"),
    "oncekey.http.django": ("django", "django"),
    "oncekey.http.fastapi": ("fastapi", "fastapi"),
    "oncekey.http.flask": ("flask", "flask"),
    "oncekey.jobs.celery": ("celery", "celery"),
    "oncekey.jobs.dramatiq": ("dramatiq", "dramatiq"),
    "oncekey.jobs.rq": ("rq", "rq"),
    "oncekey.jobs.taskiq": ("taskiq", "taskiq"),
    "oncekey.observe.prometheus": ("prometheus_client", "prometheus"),
}
WITHOUT = """
import sys, importlib
for front, package in {fronts}.items():
    sys.modules[package] = None
    try:
        importlib.import_module(front)
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
    else:
        print(front, "was imported")
"""


def test_every_front_door_says_which_extra_it_needs():
    program = WITHOUT.format(fronts={front: package for front, (package, _) in FRONTS.items()})
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    told = dict(zip(FRONTS, done.stdout.splitlines(), strict=True))
    for front, (package, extra) in FRONTS.items():
        start = f"ConfigurationError: {front} needs the package '{package}"
        assert told[front].startswith(start), told[front]
        assert told[front].endswith(f"'; pip install 'oncekey[{extra}]'"), told[front]


STORES = """
import sys
sys.modules["psycopg"] = sys.modules["redis"] = None
from oncekey import ConfigurationError, stores
for name in ["RedisStore", "AsyncRedisStore", "PostgresStore", "AsyncPostgresStore"]:
    try:
        getattr(stores, name)
    except ConfigurationError as error:
        print(error)
for url in ["redis://localhost", "postgresql://host/db"]:
    try:
        stores.open_store(url)
    except ConfigurationError as error:
        print(error)
"""


def test_a_store_without_its_driver_names_the_extra():
    """Run this in a process of its own: here the modules of the stores are in use."""
    done = subprocess.run(
        [sys.executable, "-c", STORES], capture_output=True, text=True, check=True
    )
    redis, postgres = "pip install 'oncekey[redis]'", "pip install 'oncekey[postgres]'"
    extras = [line.partition("; ")[2] for line in done.stdout.splitlines()]
    assert extras == [redis, redis, postgres, postgres, redis, postgres]


def test_a_missing_module_of_ours_is_our_mistake():
    with pytest.raises(ModuleNotFoundError), needing("redis", "a store"):
        import_module("oncekey.no_such_module")


def test_what_is_there_is_imported():
    with needing("redis", "a store"):
        assert import_module("json") is json
    words = "a store needs the package 'no_such_package'; pip install 'oncekey.redis.'"
    with pytest.raises(ConfigurationError, match=words), needing("redis", "a store"):
        import_module("no_such_package")
