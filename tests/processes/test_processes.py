"""Several real processes on one store, each store in turn: crowds, kills, pauses and forks."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from oncekey import current, current_async
from tests.heavy import HEAVY
from tests.leases import end_lease
from tests.patience import PATIENCE, until
from tests.processes.store_fixtures import STORES
from tests.processes.worker import PROCESSES

KEYS = 200 if HEAVY else 20  # for each, all processes line up


@pytest.mark.row("P4", "P11", "J3")
@pytest.mark.parametrize(("mode", "callers"), [("crowd_of_threads", 16), ("crowd_of_tasks", 64)])
def test_one_key_and_many_processes_run_it_once(store_url, ledger, spawn, mode, callers):
    crowd = [spawn(mode, store_url, ledger, str(KEYS), str(callers)) for _ in range(PROCESSES)]
    printed = [json.loads(worker.output()) for worker in crowd]
    assert sorted(map(int, Path(ledger).read_text().split())) == list(range(KEYS))
    winners = set()
    for key in range(KEYS):
        answers = {answer for answers in printed for answer in answers[key]}
        assert len(answers) == 1
        winners.add(answers.pop().split(":")[1])
    assert len(winners) > 1  # they did meet: more than one process won a key


@pytest.mark.row("P13")
@pytest.mark.parametrize("mode", ["stall", "stall_async"])
def test_a_killed_worker_is_taken_over_with_its_notes_and_steps(
    store_url, once, ledger, spawn, mode
):
    worker = spawn(mode, store_url, ledger, "loser")
    worker.until("inside")
    worker.signal(signal.SIGKILL)
    assert worker.process.wait(PATIENCE) == -signal.SIGKILL
    seen = []

    def work() -> str:
        attempt = current()
        seen.append((attempt.number, attempt.uncertain, attempt.notes, attempt.record.steps))
        attempt.step("charge", lambda: pytest.fail("the step was done"))
        return "winner"

    end_lease(once.store, "import:1")
    patient = once.options(wait=PATIENCE, fingerprint=None)
    assert patient.run("import:1", work) == "winner"
    assert seen == [(2, True, {"reference": "ref-1"}, ("charge",))]
    assert Path(ledger).read_text() == "charge\n"


@pytest.mark.row("P13")
@pytest.mark.parametrize("mode", ["stall", "stall_async"])
def test_a_paused_worker_answers_with_the_winners_result(store_url, once, ledger, spawn, mode):
    worker = spawn(mode, store_url, ledger, "loser")
    worker.until("inside")
    worker.signal(signal.SIGSTOP)

    async def work() -> str:
        attempt = current_async()
        assert attempt.number == 2
        return "winner"

    end_lease(once.store, "import:1")
    patient = once.options(wait=PATIENCE)
    assert asyncio.run(patient.run_async("import:1", work)) == "winner"
    worker.signal(signal.SIGCONT)
    assert worker.output() == "winner"
    assert once.get("import:1").value == "winner"


@pytest.mark.parametrize("mode", ["stall", "stall_async"])
def test_a_living_worker_keeps_its_lease(store_url, once, ledger, spawn, mode):
    """It blocks, and its lease gets longer and longer."""
    worker = spawn(mode, store_url, ledger, "alive", "beats")
    worker.until("inside")
    first = once.get("import:1").lease_end
    until(lambda: once.get("import:1").lease_end > first + 500_000)
    assert once.get("import:1").attempt == 1
    assert worker.output() == "alive"


def test_a_once_made_before_a_fork_works_in_the_child(store_url, ledger, spawn):
    worker = spawn("fork", store_url, ledger)
    assert worker.output() == "both lived"
    expected = ["before", "before-a", "child", "child-a", "after", "after-a"]
    assert Path(ledger).read_text().split() == expected


@pytest.mark.parametrize("store_url", [*STORES, "memory"], indirect=True)
def test_two_loops_one_after_another_share_a_once(once):
    runs = []

    async def work() -> int:
        runs.append(1)
        await asyncio.sleep(0)
        return 5

    async def crowd() -> list[int]:
        return list(await asyncio.gather(*(once.run_async("loops", work) for _ in range(5))))

    assert asyncio.run(crowd()) == [5] * 5
    assert asyncio.run(crowd()) == [5] * 5
    assert runs == [1]
    asyncio.run(once.aclose())
    assert asyncio.run(crowd()) == [5] * 5
