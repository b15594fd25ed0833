"""A process that ends at once after its work: what it still has to tell the store is told."""

import pytest

from oncekey import Once


@pytest.mark.parametrize("colour", ["threads", "tasks"])
def test_a_run_that_began_without_the_store_is_recorded_before_the_end(
    another_redis, spawn_of, tmp_path, until, colour
):
    server = another_redis()
    server.kill()
    worker = spawn_of("tests.faults.last_moments", colour, server.url)
    worker.until("inside")
    server.start()
    once = Once(server.url, cache=False)
    until(lambda: once.get("job") is not None)  # claimed late
    assert worker.output() == "done"
    record = once.get("job")
    assert (record.status, record.attempt, record.value) == ("completed", 1, "done")
    once.close()
