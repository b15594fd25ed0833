"""The benchmark runs, reports every row, and says by its exit code whether a target was missed."""

import asyncio
import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from bench import __main__ as bench
from bench.cases.many import Tasks
from bench.cores import on_one_core
from bench.report.rows import Report, Row
from bench.report.saved import as_json, from_json
from bench.report.terminal import show
from bench.run import PARTS
from bench.settings import QUICK
from bench.timing import Side, Spread, interleave
from tests.heavy import HEAVY
from tests.patience import PATIENCE

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
    "sqlite-new-tasks": "at least 7.5x",
    "sqlite-duplicate": "",
    "sqlite-commits-one": "2",
    "sqlite-commits-threads": "",
    "sqlite-commits-tasks": "",
    "sqlite-statements-duplicate": "1 read, no commit",
    "memory-new": "at most 0.35x",
    "memory-duplicate": "",
    "memory-cached": "at most 0.2x",
    "import": "at most 1.5x",
    "redis-new": "at least 1.05x",
    "redis-duplicate": "at least 1.0x",
    "redis-new-threads": "at least 2.2x",
    "redis-new-tasks": "at least 4.5x",
    "redis-duplicate-tasks": "at least 4.0x",
    "postgres-new": "at least 0.88x",
    "postgres-duplicate": "",
    "postgres-new-tasks": "at least 4.0x",
    "mysql-new": "at least 0.75x",
    "mysql-duplicate": "",
    "mysql-new-tasks": "at least 3.0x",
    "events-publish": "at least 2.5x",
    "events-latency": "at most 4x",
    "events-crowd": "under 300, none lost",
    "events-storm": "under 1",
    "events-unwatched": "at most 0.1x",
    "events-redis-cpu": "at most 2.5x",
    "events-redis-memory": "at most 1.4x",
    "events-router": "at least 0.7x",
    "observe-new": "at most 1.05x",
    "observe-duplicate": "at most 1.05x",
    "crowd-threads": "at most 10",
    "crowd-tasks": "at most 10",
    "breaker-open": "less than 1x",
    "jobs-enqueue-new": "at most 1.0x",
    "jobs-enqueue-duplicate": "at most 1.0x",
    "jobs-worker": "at least 0.7x",
    "http-none": "at least 0.95x",
    "http-new": "at least 0.58x",
    "http-duplicate": "at least 1.3x",
    "http-duplicate-uncached": "",
    "http-memory": "at most 1.1x",
    "inbox-atomic": "at most 1.9x the time",
    "inbox-batch": "at least 5x",
    "inbox-statements": "4: claim, completion, savepoint, release",
    "inbox-purge": "at least 100,000",
    "inbox-beside-purge": "at least 0.8x",
    "outbox-put": "at most 1.25x the time",
    "outbox-relay": "at least 0.4x",
    "outbox-latency": "at most 5x",
    "outbox-growth": "at most 1.2x the time",
    **{
        f"outbox-{k}-{p}": "at least 1.0x"
        for k in ("put", "relay")
        for p in ("faststream", "django")
    },
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
        timeout=3 * PATIENCE,  # for all of a run, and not for one answer
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


def test_a_server_that_was_moved_to_a_core_runs_where_it_likes_afterwards():
    """The parts of a run share a server: what comes next must not find it on its own core."""
    allowed = os.sched_getaffinity(0)
    waits = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE) as server,
        subprocess.Popen(waits, stdin=subprocess.PIPE) as gone,
    ):
        with on_one_core() as cores:
            if cores is not None:  # None where there is but one
                cores.mover(gone.pid, cores.here)
                cores.mover(server.pid, cores.other)()
                assert os.sched_getaffinity(0) == {cores.here}
                assert os.sched_getaffinity(server.pid) == {cores.other}
            gone.kill()
            gone.wait()
        assert os.sched_getaffinity(0) == os.sched_getaffinity(server.pid) == allowed
        server.kill()


def test_no_two_tasks_ask_for_the_same_order_at_once():
    tasks, asking = Tasks(4), set()

    async def work(order):
        assert order not in asking
        asking.add(order)
        for _ in range(int(order)):  # some are slower than others
            await asyncio.sleep(0)
        asking.remove(order)

    with tasks.runner:
        tasks.side(work, 400, ["1", "2", "3", "4"]).work(400)


# Each group is measured by one process. Workers of pytest-xdist share the groups.
QUICK_GROUPS = {
    "small": ("sqlite", "memory", "import", "redis", "redis-many", "observe", "crowd", "breaker"),
    "servers": ("jobs", "http", "http-memory"),
}
LONG_GROUPS = {
    "processes": ("events", "where"),
    "postgres": ("postgres", "postgres-many", "inbox", "outbox"),
    "mysql": ("mysql",),
    "growth": ("growth",),
    "peers": ("peers",),
}
GROUPS = QUICK_GROUPS | LONG_GROUPS if HEAVY else QUICK_GROUPS
COUNTED = ("sqlite-commits-one", "sqlite-statements-duplicate", "crowd-threads", "crowd-tasks")


class Quick(NamedTuple):
    parts: tuple[str, ...]
    report: dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(parts, id=name, marks=pytest.mark.xdist_group(f"bench {name}"))
        for name, parts in GROUPS.items()
    ],
)
def quick(request: pytest.FixtureRequest) -> Quick:
    done = run_bench("--quick", "--json", *request.param)
    assert (done.returncode, done.stderr) == (0, "")
    return Quick(request.param, json.loads(done.stdout))


def subject(name: str) -> str:
    """What a part, or a row of it, is about. Peers over HTTP are measured together with HTTP."""
    return "http" if name.startswith("peers-http-") else name.partition("-")[0]


def test_every_part_is_in_a_group():
    groups = (QUICK_GROUPS | LONG_GROUPS).values()
    assert sorted(part for parts in groups for part in parts) == sorted(PARTS)


def test_a_quick_run_reports_every_row(quick):
    rows = {row["id"]: row for row in quick.report["rows"]}
    subjects = set(map(subject, quick.parts))
    wanted = {name: target for name, target in ROWS.items() if subject(name) in subjects}
    assert {name: row["target"] for name, row in rows.items()} == wanted
    for name, row in rows.items():
        assert row["value"] >= 0
        assert bool(row["target"]) == bool(row["verdict"])
        # Peers are only installed for a full run, and MariaDB by `make test-servers`.
        assert name.startswith(("peers-", "mysql-")) or row["verdict"] != "NOT MEASURED", row


def test_what_is_counted_and_not_timed_is_as_promised(quick):
    rows = {row["id"]: row for row in quick.report["rows"]}
    assert [name for name in COUNTED if name in rows and not rows[name]["met"]] == []
    if "sqlite" in quick.parts:
        assert rows["sqlite-commits-threads"]["value"] <= 2
        assert rows["sqlite-commits-tasks"]["value"] < 2


def test_a_report_names_no_place_and_no_machine(quick):
    assert "/" not in "".join(quick.report["machine"].values())


def test_in_a_pipe_each_row_is_a_line_and_parts_can_be_measured_alone():
    done = run_bench("--quick", "crowd")
    assert (done.returncode, done.stderr) == (0, "")
    call = f"{QUICK.duplicates} duplicates of a {QUICK.seconds} s call"
    titles = re.findall(r"^(.+?): .+; target .+: ok$", done.stdout, re.MULTILINE)
    assert titles == [f"{call}, threads", f"{call}, tasks"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--quick", "--write"], "--quick measures nothing worth writing down"),
        (["htpp"], "there is no part htpp; there are sqlite, "),
        (["--quick", "--folder", "no-such-folder"], "--folder must name a folder that exists"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, arguments, told):
    with pytest.raises(SystemExit, match="2"):
        bench.main(arguments)
    assert told in capsys.readouterr().err


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
