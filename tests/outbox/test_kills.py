"""Relays die and hang: each committed message reaches an inbox once, in the order of its key."""

from tests.outbox.kill_run import JetStreamReader, KillRun
from tests.servers.nats_fixtures import nats_server, stream_name

__all__ = ["nats_server", "stream_name"]


async def test_relays_that_die_and_hang_lose_and_double_nothing(
    postgres_url, nats_server, stream_name
):
    run = KillRun(postgres_url, JetStreamReader(nats_server.url, stream_name), messages=160)
    await run.run(kills=2)
    assert run.killed, run.figures()
    assert run.paused, run.figures()
