import shutil
import tempfile
from pathlib import Path

import pytest

from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.system.pgbouncer.server import PgBouncer

__all__ = ["postgres", "postgres_url"]


@pytest.fixture(scope="module", params=["session", "transaction", "statement"])
def pgbouncer(request, postgres):
    """A PgBouncer in each mode. Its folder is not pytest's, which only its owner may enter."""
    folder = Path(tempfile.mkdtemp(prefix="oncekey-pgbouncer-"))
    pool = PgBouncer(folder, postgres, request.param).start()
    yield pool
    pool.stop()
    shutil.rmtree(folder)


@pytest.fixture
def pooled_url(pgbouncer, postgres_url):
    """The URL of an empty database, through the pool."""
    return pgbouncer.url(postgres_url.rpartition("/")[2])
