"""Every tool of the Makefile runs as a command, in its shortest form, so that none of them rots.

The benchmark itself is in test_bench.py, `make defects` in test_defects.py.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.architecture import PICTURES, path_of
from bench.where import KEPT, Table
from tests.faults.matrix.program import main as matrix
from tests.heavy import HEAVY
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


def run(*arguments: str, ends: tuple[int, ...] = (0,)) -> str:
    """Run a module of Python as a command that ends with such a code. Return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,  # for all of a run, and not for one answer
        check=False,
    )
    assert done.returncode in ends, done.stdout + done.stderr
    return done.stdout


def test_bench_ops_measures_every_store():
    told = run("bench.ops", "--quick")
    assert re.findall(r"^(\w+): one read by primary key took [\d,]+ µs$", told, re.MULTILINE) == [
        "SQLite",
        "PostgreSQL",
        "Redis",
    ]
    assert len(re.findall(r"; target at most 50x: (?:ok|MISSED)$", told, re.MULTILINE)) == 3 * 4


def test_bench_sizes_prints_both_tables():
    told = run("bench.sizes", "--records", "64")
    assert len(re.findall(r"^\| .+ \|$", told, re.MULTILINE)) == 6 + 5
    assert re.search(r"^Measured with 64 records of each size on Redis .+\.$", told, re.MULTILINE)


def test_bench_scale_prints_both_tables():
    told = run("bench.scale", "--records", "1000", "--seconds", "0.1", "--most", "1")
    assert len(re.findall(r"^\| (?:Redis|PostgreSQL) [\d.]+ \|", told, re.MULTILINE)) == 2 + 2
    assert told.count("Measured on") == 2


def test_bench_processor_prints_what_both_sides_take():
    told = run("bench.processor", "--rounds", "1")
    rows = re.findall(r"^  .+ ([\d.]+) +([\d.]+) +([\d.]+) +[\d.]+x$", told, re.MULTILINE)
    assert len(rows) == 4 + 3 + 3
    assert all(float(client) and float(server) for client, server, _ in rows)


def test_the_walk_goes_through_six_calls():
    walks = json.loads(run("bench.walk", "--json"))
    assert len(walks) == 6
    assert all(len(one["files"]) < one["calls"] for one in walks.values())
    assert walks["sync function, SQLite"]["files"][0] == "functions.py"
    for name, picture in PICTURES.items():  # those of docs/architecture.md
        drawn = re.findall(r">([\w/]+\.py)</text>", path_of(picture.name).read_text("utf-8"))
        assert sorted(drawn) == sorted(walks[name]["files"]), (
            "python -m bench.walk --write draws it"
        )


def test_no_call_takes_many_more_steps_than_those_that_are_kept():
    found = msgspec.json.decode(run("bench.where", "--quick", "--json"), type=Table)
    kept = msgspec.json.decode(KEPT.read_bytes(), type=Table)
    assert found.calls.keys() == kept.calls.keys()
    taken = {name: call.ours / kept.calls[name].ours for name, call in found.calls.items()}
    assert {name: ratio for name, ratio in taken.items() if ratio > 1.1} == {}, (
        "make bench-where shows which function takes them; python -m bench.where --write keeps them"
    )


def test_the_calls_whose_instructions_are_counted_can_be_made():
    assert run("bench.where", "--make-calls") == ""


def test_the_simulation_lives_through_its_schedules():
    told = run("tests.simulation", "--seeds", "50", "--workers", "2")
    assert re.search(r"^50 schedules, [\d,]+ requests .+, 0 violations, ", told, re.MULTILINE)
    assert re.search(r"^\d+ of \d+ paths reached$", told, re.MULTILINE)


def test_the_fault_matrix_runs_the_rows_that_are_asked_for():
    """Its leases are of seconds, which a busy machine may need for a call: `make faults` judges."""
    told = run("tests.faults.matrix", "--small", "--rows", "F14", "--stores", "sqlite", ends=(0, 1))
    assert re.search(r"^(ok|RED) +F14 +sqlite +function +held ", told, re.MULTILINE)
    assert re.search(r"^[01] of 1 cells as promised, \d+ operations, \d+ s$", told, re.MULTILINE)


SOAKED = ["sqlite", "redis", "postgres"] if HEAVY else ["redis"]


def test_a_soak_meets_every_kind_of_trouble_on_every_store():
    """What it promises about seconds is judged by `make soak`."""
    asked = ("--small", "--soak", "1s", "--stores", ",".join(SOAKED))
    told = run("tests.faults.matrix", *asked, ends=(0, 1))
    assert re.findall(r"^(?:ok|RED) +(\w+) ", told, re.MULTILINE) == SOAKED
    [met] = re.findall(r"(\d+) workers killed, (\d+) stopped, (\d+) servers killed,", told)
    assert all(int(count) > 0 for count in met)


def test_a_small_soak_is_not_written_down():
    with pytest.raises(SystemExit, match="leave --small out"):
        matrix(["--small", "--soak", "1s", "--write"])


def test_the_documentation_is_built_without_a_warning(tmp_path):
    """Read all pages and follow all references; writing them as HTML takes twice as long."""
    told = run("sphinx", "-W", "-n", "--keep-going", "-q", "-b", "dummy", "docs", str(tmp_path))
    assert told == ""
