"""The same as tests/outbox/test_kills.py on every broker, with servers that are killed, too."""

import pytest

from tests.system.outbox.kills import BROKERS, killing


@pytest.mark.parametrize("broker", BROKERS)
async def test_what_was_committed_arrives_once_and_in_order(broker, tmp_path):
    with killing(broker, tmp_path, messages=800) as run:
        await run.run(kills=6)
    assert run.killed >= 4, run.figures()
    assert run.paused >= 2, run.figures()
    assert run.restarted == 2, run.figures()
