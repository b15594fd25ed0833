"""Consumers are killed while they work: every message is done once, and none is a dead letter."""

from tests.patience import PATIENCE
from tests.system.rabbitmq.message_kills import Settings, run


async def test_killed_consumers_lose_nothing(rabbit_server, postgres_url):
    """Each kill counts as a delivery of what that consumer had, and nothing else does.

    The queue allows one delivery more than that; `python -m tests.system.rabbitmq.message_kills` is
    the same with more messages, more kills and longer leases.
    """
    settings = Settings(
        20,
        "6s",
        kill_every=1.5,
        work=2.0,
        delivery_limit=3,
        most_kills=2,
        only_busy=True,
        wait="0s",
        patience=PATIENCE,
    )
    report = await run(rabbit_server.url, postgres_url, settings)
    assert (report.done_once, report.done_twice, report.dead_letters) == (20, 0, 0)
    assert report.kills == 2
    assert report.executions > 20  # else nobody was killed while he worked
