"""Fixtures with a proxy before the PostgreSQL that all tests share."""

import pytest

from tests.servers.postgres_proxy import Pooler, Proxy

PLAIN = "?sslmode=disable&gssencmode=disable"


@pytest.fixture
def proxy(postgres):
    """A way to the server that can be cut."""
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied_url(postgres, postgres_url, proxy):
    """A database of its own, behind the proxy."""
    return postgres_url.replace(f":{postgres.port}/", f":{proxy.port}/") + PLAIN


@pytest.fixture
def pooled_url(postgres, postgres_url):
    """A database of its own, behind a pooler."""
    pooler = Pooler(postgres.port)
    yield postgres_url.replace(f":{postgres.port}/", f":{pooler.port}/") + PLAIN
    pooler.close()
