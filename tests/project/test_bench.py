"""The benchmark runs, reports every row, and says by its exit code whether a target was missed."""

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bench import __main__ as bench
from bench.interleave import Side, Spread, interleave
from bench.row import Row
from bench.run import Report
from bench.saved import as_json, from_json
from bench.settings import QUICK
from bench.show import show
from tests.heavy import HEAVY

pytestmark = pytest.mark.xdist_group("bench")  # what they share is made once

ROOT = Path(__file__).parents[2]

STORES = ("memory", "redis", "postgres")
KINDS = ("new", "duplicate")
PLACES = (
    *(
        f"{s}-{k}-{c}"
        for s in ("redis", "postgres")
        for k in KINDS
        for c in ("one", "task", "tasks")
    ),
    *(f"{s}-{k}-{c}" for s in ("sqlite", "hasty") for k in KINDS for c in ("one", "tasks")),
    *(f"http-{k}" for k in KINDS),
)
# Those with a target carry it.
ROWS = {
    "sqlite-new-one": "at least 0.7x",
    "sqlite-new-threads": "",
    "sqlite-new-tasks": "at least 10x",
    "sqlite-duplicate": "",
    "sqlite-commits-one": "2",
    "sqlite-commits-threads": "",
    "sqlite-commits-tasks": "",
    "sqlite-statements-duplicate": "1 read, no commit",
    "memory-new": "at most 0.35x",
    "memory-duplicate": "",
    "memory-cached": "at most 0.2x",
    "redis-new": "at least 1.0x",
    "redis-duplicate": "at least 0.9x",
    "redis-new-threads": "at least 1.5x",
    "redis-new-tasks": "at least 3.0x",
    "redis-duplicate-tasks": "at least 3.0x",
    "postgres-new": "at least 0.85x",
    "postgres-duplicate": "",
    "postgres-new-tasks": "at least 3.0x",
    "events-publish": "at least 2.5x",
    "events-latency": "at most 4x",
    "events-crowd": "under 300, none lost",
    "observe-new": "at most 1.05x",
    "observe-duplicate": "at most 1.05x",
    "crowd-threads": "at most 10",
    "crowd-tasks": "at most 10",
    "breaker-open": "less than 1x",
    "jobs-enqueue-new": "at most 1.0x",
    "jobs-enqueue-duplicate": "at most 1.0x",
    "jobs-worker": "at least 0.7x",
    "http-none": "at least 0.95x",
    "http-new": "at least 0.6x",
    "http-duplicate": "at least 1.2x",
    "http-duplicate-uncached": "",
    "http-memory": "at most 1.1x",
    "inbox-atomic": "at most 1.5x the time",
    "inbox-statements": "4: claim, completion, savepoint, release",
    "inbox-purge": "at least 100,000",
    "inbox-beside-purge": "at least 0.8x",
    **{f"where-{s}-{k}": "" for s in ("memory", "sqlite", "redis") for k in KINDS},
    **{f"growth-{store}-{size}": "at most 1.2x" for store in STORES for size in ("many", "most")},
    **{f"peers-{place}": "at least 1.0x" for place in PLACES},
}


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def report(*rows: Row) -> Report:
    return Report(QUICK, {"Python": "3"}, list(rows))


GOOD = Row(
    id="good",
    title="A good one",
    value=1234.5,
    unit="calls/s",
    against="the raw one",
    against_value=2469.0,
    ratio=Spread(0.5, 0.4, 0.6),
    target="at least 0.4x",
    met=True,
)
MISSED = dataclasses.replace(GOOD, id="missed", title="A slow one", met=False)
UNMEASURED = dataclasses.replace(
    GOOD, id="unmeasured", title="An absent one", ratio=None, met=None, remark="nobody was there"
)


# The parts that need processes of their own take a minute, even when they are quick.
PARTS = () if HEAVY else ("sqlite", "memory", "redis", "redis-many", "crowd", "breaker", "observe")
MEASURED = {
    name: target
    for name, target in ROWS.items()
    if HEAVY or name.startswith(("sqlite", "memory", "redis", "crowd", "breaker", "observe"))
}


@pytest.fixture(scope="module")
def quick() -> str:
    done = run_bench("--quick", "--json", *PARTS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_quick_run_reports_every_row(quick):
    rows = {row["id"]: row for row in json.loads(quick)["rows"]}
    assert {name: row["target"] for name, row in rows.items()} == MEASURED
    for row in rows.values():
        assert row["value"] >= 0
        assert bool(row["target"]) == bool(row["verdict"])


def test_what_is_counted_and_not_timed_is_as_promised(quick):
    rows = {row["id"]: row for row in json.loads(quick)["rows"]}
    assert rows["sqlite-commits-one"]["value"] == 2
    assert rows["sqlite-commits-threads"]["value"] <= 2
    assert rows["sqlite-commits-tasks"]["value"] < 2
    for name in ("sqlite-statements-duplicate", "crowd-threads", "crowd-tasks"):
        assert rows[name]["met"], rows[name]


def test_a_report_names_no_place_and_no_machine(quick):
    assert "/" not in "".join(json.loads(quick)["machine"].values())


def test_in_a_pipe_each_row_is_a_line_and_parts_can_be_measured_alone(quick):
    done = run_bench("--quick", "memory", "crowd")
    assert (done.returncode, done.stderr) == (0, "")
    for row in json.loads(quick)["rows"]:
        measured = row["id"].startswith(("memory-", "crowd-"))
        assert (f"\n{row['title']}: " in done.stdout) == measured


def test_a_quick_run_is_not_written_down():
    done = run_bench("--quick", "--write")
    assert done.returncode == 2
    assert "--quick" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["htpp"], "there is no part htpp; there are sqlite, "), (["http", "--write"], "every row")],
)
def test_parts_that_do_not_exist_or_are_not_enough_are_refused(capsys, arguments, told):
    with pytest.raises(SystemExit):
        bench.main(arguments)
    assert told in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    done = run_bench("--quick", "--folder", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "--folder" in done.stderr


@pytest.fixture
def results(tmp_path, monkeypatch):
    path = tmp_path / "made" / "results.json"
    monkeypatch.setattr(bench, "RESULTS", path)
    return path


@pytest.mark.parametrize(
    ("arguments", "row", "code"),
    [
        ([], GOOD, 0),
        ([], MISSED, 1),
        ([], UNMEASURED, 1),
        (["--quick"], MISSED, 0),
        (["--quick"], UNMEASURED, 0),
    ],
)
@pytest.mark.usefixtures("results")
def test_the_exit_code_says_whether_a_target_was_missed(monkeypatch, capsys, arguments, row, code):
    monkeypatch.setattr(bench, "run", lambda *_args, **_options: report(row))
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    assert bench.main(arguments) == code
    out = capsys.readouterr().out
    assert f"target at least 0.4x: {row.verdict}" in out
    assert ("nobody was there" in out) == (row is UNMEASURED)


@pytest.mark.parametrize(
    ("arguments", "kept"), [([], True), (["--quick"], False), (["sqlite"], False)]
)
def test_a_whole_run_leaves_what_it_measured(results, monkeypatch, arguments, kept):
    def breaks_off(*_args, keep, **_options):
        keep(report(GOOD))
        raise RuntimeError("the second part")

    monkeypatch.setattr(bench, "run", breaks_off)
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    with pytest.raises(RuntimeError, match="the second part"):
        bench.main(arguments)
    assert results.exists() == kept
    assert not kept or from_json(results.read_text("utf-8")) == report(GOOD)


def test_on_a_terminal_there_is_a_table():
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True, color_system=None)
    show(report(GOOD, MISSED), console)
    assert "┃ measured" in shown.getvalue()
    assert "MISSED" in shown.getvalue()


def test_for_programs_nothing_is_rounded():
    (row,) = json.loads(as_json(report(GOOD)))["rows"]
    assert row["value"] == 1234.5
    assert row["ratio"] == {"median": 0.5, "low": 0.4, "high": 0.6}


def test_sides_take_turns_and_a_ratio_is_taken_within_a_round():
    turns: list[str] = []
    times = iter([0.0, 1.0, 0.0, 2.0, 0.0, 8.0, 0.0, 4.0])  # the start and the end of each turn
    timings = interleave(
        {"a": Side(lambda n: turns.append(f"a{n}"), 1), "b": Side(lambda n: turns.append("b"), 2)},
        rounds=2,
        tick=lambda: turns.append("."),
        clock=lambda: next(times),
    )
    assert turns == ["a1", "b", "a1", ".", "b", ".", "b", ".", "a1", "."]
    assert timings == {"a": [1.0, 4.0], "b": [1.0, 4.0]}
    assert timings.speed("a", "b").median == 1.0
