"""A record that somebody else is meant to free, before its owner has settled it."""

import logging

from oncekey import Once
from oncekey.jobs import enqueue_once, enqueue_once_async
from oncekey.jobs.enqueue import HEADER, free_tagged, read_tag
from oncekey.stores import MemoryStore
from tests.faulty import FaultyStore


async def test_a_worker_that_is_quicker_than_its_producer_is_no_lost_lease(caplog):
    store = FaultyStore(MemoryStore())
    once = Once(store)
    jobs = []

    def publish(headers):
        jobs.append(headers)
        return "job"

    async def publish_async(headers):
        return publish(headers)

    def settle(do):
        free_tagged(once, read_tag(jobs[-1][HEADER]), "succeeded")
        return do()

    with caplog.at_level(logging.DEBUG, "oncekey"):
        store.instead("settle", settle)
        enqueue_once(once, "order:1", publish)
        store.instead("settle", settle)
        await enqueue_once_async(once, "order:1", publish_async)
    assert len(jobs) == 2
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
