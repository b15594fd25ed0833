"""Consumers on MariaDB are killed at random; every message is processed, and none of them twice.

INBOX_MESSAGES=2000 makes it as long as it takes to trust it, as in `tests/messages/test_kills.py`.
"""

import random

import pytest

from tests.messages.test_kills import CONSUMERS, FORKS, MESSAGES, Broker
from tests.system.mariadb.consumer import consume
from tests.system.mariadb.ways import WAYS

PRELOADED = ["tests.system.mariadb.consumer", "django.db.backends.mysql.base"]


@pytest.mark.parametrize(
    ("name", "mode", "count", "kills"),
    [
        ("pymysql", "atomic", 200, 3),
        ("sqlalchemy with asyncmy", "atomic", 200, 3),
        ("django", "atomic", 150, 3),
        ("asyncmy", "atomic", 60, 1),
        ("sqlalchemy", "atomic", 60, 1),
        ("pymysql", "leased", 80, 1),
        ("sqlalchemy with asyncmy", "leased", 60, 1),
        ("django", "leased", 60, 1),
    ],
)
def test_every_message_is_processed_once(inbox_url, name, mode, count, kills):
    way = WAYS["pymysql"](inbox_url)
    FORKS.set_forkserver_preload(PRELOADED)
    if MESSAGES:
        count, kills = MESSAGES, 12
    numbers = [f"m-{number}" for number in range(count)]
    seed = random.randrange(10**6)  # noqa: S311 - no secret
    broker = Broker((name, mode, way.url), numbers, kills, seed, consume)
    broker.run()
    assert broker.killed == CONSUMERS * kills
    assert way.orders() == sorted(numbers), f"seed {broker.seed}"
    assert broker.answers == {number: {f"receipt of {number}"} for number in numbers}
    assert {row[2] for row in way.marks()} == {"completed"}
