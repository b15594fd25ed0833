"""The store in a MariaDB of a Django project, on connections beside Django's own."""

import asyncio

import pytest
from django.db import connections, transaction  # type: ignore[import-untyped]  # it has no types

from oncekey import Once
from oncekey.core.requests import Busy
from oncekey.stores import DjangoStore, open_store
from oncekey.testing.conformance.base import DONE, Desk
from tests.http import django_project
from tests.system.mariadb.ways import settings

__all__ = ["django_project"]

MINUTE = 60_000_000
ALIAS = "shop"


def desk_of(store):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key="order-1")


@pytest.fixture
def shop(monkeypatch, url):
    """The alias of an empty database."""
    told = settings(url)
    said = {
        "ENGINE": "django.db.backends.mysql",
        "NAME": told["database"],
        "USER": told["user"],
        "HOST": told["host"],
        "PORT": str(told["port"]),
    }
    known = connections.configure_settings({"default": {}, ALIAS: said})
    monkeypatch.setitem(connections.settings, ALIAS, known[ALIAS])
    store = DjangoStore(ALIAS)
    yield store
    store.close()
    connections[ALIAS].close()
    del connections[ALIAS]


def test_a_claim_inside_of_atomic_commits_beside_it(shop, url):
    desk = desk_of(shop)
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=ALIAS):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SELECT 1")
        owner = desk.grant("a")
        other = open_store(url)
        assert type(desk_of(other).claim("b")) is Busy  # everybody sees it
        raise ZeroDivisionError
    assert desk.settle(owner) is DONE  # and the rollback has not taken it back
    other.close()


def test_it_serves_both_kinds_of_code(shop):
    once = Once(shop, cache=False)

    async def work():
        return "done"

    async def both():
        done = await once.run_async("k", work)
        await once.aclose()
        return done

    assert asyncio.run(both()) == "done"
    assert once.run("k", lambda: "again") == "done"
    once.close()
