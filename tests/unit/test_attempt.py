"""The attempt of a coroutine, as blocking code on a thread sees it."""

import asyncio

import pytest

from oncekey import ConfigurationError, Once, current, current_async


def bridge(attempt):
    """Let blocking code on a thread ask for the attempt, as the middlewares do."""
    attempt._run.loop = asyncio.get_running_loop()


@pytest.fixture
def once():
    return Once("memory://", observers=())


async def test_blocking_code_on_a_thread_notes_and_steps(once):
    def work():
        attempt = current()
        attempt.note(thread=1)
        rows = attempt.step("load", lambda: [1, 2])
        return attempt.downstream_key("charge"), rows

    async with once.attempt("import") as attempt:
        bridge(attempt)
        await attempt.note(loop=1)
        key, rows = await asyncio.to_thread(work)
        assert key == attempt.downstream_key("charge")
        assert attempt.notes == {"loop": 1, "thread": 1}
        await attempt.note(after=1)
        await attempt.complete(rows)
    record = await once.get_async("import")
    assert record.notes == {"loop": 1, "thread": 1, "after": 1}
    assert await once.run_async("import", _never) == [1, 2]


async def test_messages_are_numbered_whoever_puts_them(once):
    async with once.attempt("import") as attempt:
        bridge(attempt)
        assert attempt.next_message() == 1
        numbers = [await asyncio.to_thread(lambda: current().next_message()) for _ in range(2)]
        assert (numbers, current_async().next_message()) == ([2, 3], 4)


@pytest.mark.parametrize(("end", "status"), [("complete", "completed"), ("release", "released")])
async def test_blocking_code_on_a_thread_ends_it(once, end, status):
    def work():
        getattr(current(), end)()

    async with once.attempt("end") as attempt:
        bridge(attempt)
        await asyncio.to_thread(work)
        with pytest.raises(ConfigurationError, match="had ended"):
            await attempt.note(late=1)
    assert (await once.get_async("end")).status == status


async def test_without_the_bridge_or_on_the_loop_it_is_async(once):
    async with once.attempt("colour") as attempt:
        with pytest.raises(ConfigurationError, match="is async; use current_async"):
            await asyncio.to_thread(current)
        bridge(attempt)
        with pytest.raises(ConfigurationError, match="is async; use current_async"):
            current()
        assert current_async() is attempt


async def _never():
    pytest.fail("it must not run")


def test_an_attempt_may_be_entered_once_more_and_ends_there(once):
    with once.attempt("twice") as attempt, attempt as same:
        assert same is attempt
    assert once.get("twice").status == "completed"


async def test_an_attempt_of_a_coroutine_may_too(once):
    async with once.attempt("twice") as attempt, attempt as same:
        assert same is attempt
    assert (await once.get_async("twice")).status == "completed"
