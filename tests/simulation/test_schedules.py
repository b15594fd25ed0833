"""The simulator, run as people run it."""

import re

import pytest

from tests.heavy import HEAVY
from tests.simulation.planted import BLIND, ENOUGH, defects, plant
from tests.simulation.simulator_process import simulate
from tests.simulation.sometimes import LARGE, PATHS

TRACE = re.compile(rb"trace ([0-9a-f]{8})$", re.MULTILINE)


def test_no_schedule_breaks_a_promise_and_every_path_is_reached():
    count = 20 * LARGE if HEAVY else LARGE
    done = simulate("--seeds", str(count), "--workers", "1")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert f"{count:,} schedules,".encode() in done.stdout
    assert b" 0 violations," in done.stdout
    assert f"{len(PATHS)} of {len(PATHS)} paths reached".encode() in done.stdout


def test_a_seed_leaves_the_same_trace_whenever_and_wherever_it_is_lived():
    count = LARGE if HEAVY else 200
    traces = set()
    for hashes in ("1", "2"):
        done = simulate("--seeds", str(count), "--twice", "--workers", "1", PYTHONHASHSEED=hashes)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        traces.update(TRACE.findall(done.stdout))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "abc"], "--seed: must be a whole number of at least 0, but it is 'abc'"),
        (["--seed", "-1"], "--seed: must be a whole number of at least 0, but it is '-1'"),
        (["--seeds", "0"], "--seeds: must be a whole number of at least 1, but it is '0'"),
        (["--workers", "many"], "--workers: must be a whole number of at least 1"),
        (["--defect", "none_such"], "no planted defect of the core is called 'none_such'"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_what_cannot_be_understood_is_said_in_one_sentence(arguments, words):
    done = simulate(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr.decode()


def test_one_seed_is_told_as_a_story():
    done = simulate("--seed", "7")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert any("calls in" in line for line in lines)
    assert lines[-1] == "no violation"


def test_a_broken_promise_comes_with_its_command_and_the_fewest_faults(broken_sources):
    path = str(broken_sources("no_token_check") / "src")
    done = simulate("--seeds", str(ENOUGH), "--workers", "1", PYTHONPATH=path)
    told = done.stdout.decode()
    assert done.returncode == 1, told
    seed = re.search(r"repeat it: python -m tests\.simulation --seed (\d+)$", told, re.MULTILINE)
    fewest = re.search(r"of (\d+) faults these (\d+) are enough:$", told, re.MULTILINE)
    assert seed
    assert fewest
    assert int(fewest[2]) <= int(fewest[1])
    again = simulate("--seed", seed[1], PYTHONPATH=path)
    assert again.returncode == 1
    assert f"violation in seed {seed[1]}: ".encode() in again.stdout
    assert simulate("--seed", seed[1]).returncode == 0  # it is the defect, and not the seed


SEEN = [name for name in defects() if name not in BLIND]
FEW = (
    "lease_boundary",  # the machine
    "late_run_not_recorded",  # both engines
    "late_grant_is_not_renewed_at_once",
    "silence_is_waited_for_four_times",
    "late_claim_over_in_silence",  # a chore, and a flight that is never landed
    "last_chores_dropped",  # the keeper
)
"""Each is found within some hundred schedules."""


def test_what_is_blind_is_a_planted_defect():
    assert not BLIND.keys() - defects().keys()


@pytest.mark.parametrize("name", SEEN if HEAVY else FEW)
def test_a_planted_defect_of_the_core_is_found(name):
    verdict = plant(defects()[name])
    assert verdict.seed is not None, verdict.words


def test_the_program_says_at_which_seed_it_found_a_defect():
    done = simulate("--defect", "waiter_not_judged_again")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert b"  found at seed " in done.stdout
