"""Fixtures for tasks of Celery without a worker. A test module imports the ones it asks for."""

import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Celery  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.jobs import by_fields

BY_ORDER = by_fields("order")


@pytest.fixture
def once():
    once = Once("memory://")
    yield once
    once.close()


@pytest.fixture
def app():
    """Tasks run where they are sent."""
    app = Celery("eager", set_as_current=False)
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    app.task = functools.partial(app.task, shared=False)  # not in the apps of other tests
    yield app
    app.close()


@pytest.fixture
def ran():
    return []


def in_another_thread(function, *args, **kwargs):
    """Where this attempt is nobody's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args, **kwargs).result()
