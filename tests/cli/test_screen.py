"""What watch draws, line by line."""

from io import StringIO

import pytest
from rich.console import Console, ConsoleDimensions

from oncekey import StoreError
from oncekey.cli.watch import Screen, WatchView
from oncekey.core.record import Record
from oncekey.stores.browse import RecordCounts

NOW = 1_767_225_600_000_000


def record(key, lease_end=NOW + 1):
    return Record(
        scope=None, key=key, status="running", fingerprint=None, token=1, nonce="n", attempt=1,
        lease_end=lease_end, created=NOW - 5_000_000, started=NOW, updated=NOW, expires=NOW + 1,
    )  # fmt: skip


def view(*keys, exact=True, new=None, complete=True):
    by_status = {"running": len(keys), "held": 1_234_567}
    counts = RecordCounts(
        total=1_234_570,
        by_status=by_status,
        lapsed=0,
        exact=exact,
        held_exact=exact,
        looked_at=400,
        now=NOW,
    )
    return WatchView(
        counts=counts, records=[record(key) for key in keys], new=new, complete=complete
    )


def drawn(frame, view, width=80, height=10):
    out = Console(file=StringIO(), width=width, height=height)
    out.print(frame.drawn(view, ConsoleDimensions(width, height)))
    return out.file.getvalue().splitlines()


@pytest.fixture
def frame():
    return Screen("postgresql://anna:secret@db:5432/shop?sslmode=require", "2s", redact=False)


def test_the_head_says_where_when_and_how_many(frame):
    title, counts, remark, *_ = drawn(frame, view("a", new=3, exact=False, complete=False), 160)
    assert title.startswith("oncekey  postgresql://db:5432/shop ")
    assert title.endswith("UTC, every 2s, Ctrl-C ends")
    assert counts == "running about 1   held about 1,200,000   total about 1,200,000"
    assert remark == (
        "estimated from 400 records; still walking over the store for the newest; "
        "3 new since the last look"
    )


def test_lapsed_ones_are_told_beside_those_that_run(frame):
    shown = view("a", "b")
    shown.records[0] = record("a", lease_end=NOW)
    shown.counts.lapsed = 1
    _, counts, _, _, _, first, *_ = drawn(frame, shown, 160)
    assert counts.startswith("running 2 (1 lapsed)   held ")
    assert first.startswith("lapsed ")


def test_no_password_reaches_the_screen(frame):
    assert "secret" not in "".join(drawn(frame, view("a"), 200))


def test_as_many_records_as_fit_each_on_one_line(frame):
    lines = drawn(frame, view(*(f"key-{number}-{'x' * 200}" for number in range(20))), 40, 9)
    assert len(lines) == 9
    assert all(len(line) <= 40 for line in lines)
    keys = [line.split()[1][:6] for line in lines if "key-" in line]
    assert keys == ["key-0-", "key-1-", "key-2-"]  # the counts take two lines here


def test_trouble_stands_above_the_last_view(frame):
    assert "gone" in drawn(frame, StoreError("gone\x1b[2J"))[1]
    drawn(frame, view("a"))
    lines = drawn(frame, StoreError("the store is gone\x1b[2J"))
    assert lines[2] == r"the store is gone\x1b[2J"
    assert "a" in lines[5]


def test_a_record_cannot_steer_the_terminal(frame):
    text = "\n".join(drawn(frame, view("\x1b[31mred[bold]")))
    assert "\x1b" not in text
    assert r"\x1b[31mred[bold]" in text


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80])
def test_a_status_is_never_cut(frame, width):
    lines = drawn(frame, view(*("k" * 200 for _ in range(3)), exact=False), width, 14)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= 14
    whole = " ".join(" ".join(lines).split())
    assert "held about 1,200,000" in whole
    assert "running about 3" in whole
    assert [line.split()[0] for line in lines if "kkk" in line] == ["running"] * 3
