"""Three rows of the fault matrix, small; `make faults` runs the whole."""

import socket

import pytest

from tests.faults.matrix import page, rows, show
from tests.faults.matrix.cells import CELLS, Entry
from tests.faults.matrix.lab import Result
from tests.faults.matrix.points import Failpoints
from tests.faults.matrix.program import chosen, laboratory, main, run
from tests.faults.matrix.verdict import Figures
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.xdist_group("matrix")  # one set of workers and servers for all


@pytest.fixture(scope="module")
def lab():
    with laboratory(small=True) as lab:
        yield lab


def cells(row, store, surface):
    return [one for one in chosen([row], [store]) if one.surface == surface]


@pytest.mark.parametrize(
    ("row", "store", "surface"),
    [
        ("F1", "sqlite", "coroutine"),  # workers are killed
        ("F2", "redis", "function"),  # replies are lost
        ("F4", "redis", "job"),  # workers stand still and are taken over
    ],
)
def test_nothing_is_doubled_and_nothing_is_lost(lab, row, store, surface):
    for entry in cells(row, store, surface):
        done = run(lab, entry)
        assert done.passed, done


def test_what_is_not_protected_is_seen(lab):
    """The ledger counts, and the checker finds no order: the harness can fail."""
    [entry] = cells("F3", "sqlite", "naive")
    done = run(lab, entry)
    assert done.result.figures.asked_again > 0, done
    assert done.result.figures.tangled > 0, done


def test_every_row_is_run_or_says_why_not():
    assert {one.row for one in CELLS} | set(rows.NOT_RUN) == set(rows.ROWS)


def test_rows_and_stores_that_there_are_not_are_refused():
    for words in (["--rows", "F99"], ["--stores", "oracle"], ["--soak", "1s"]):
        with pytest.raises(SystemExit, match=r"no row F99|no store oracle|a soak takes"):
            main(words)
    with pytest.raises(SystemExit, match="none of these rows"):
        main(["--rows", "F7", "--stores", "sqlite"])
    with pytest.raises(SystemExit, match="whole matrix"):
        main(["--rows", "F1", "--write"])
    with pytest.raises(ValueError, match="no failpoint"):
        Failpoints(["after_efect:kill@0.1"], "seed")


def test_a_server_that_does_not_start_fails_its_cell_and_the_run(tmp_path, capsys):
    server = RedisServer(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server.port))
        entry = Entry("F1", "no server", "redis", "function", "keyed", lambda *_: server.start())
        done = run(None, entry)
    assert (done.passed, done.result) == (False, None)
    assert f"port {server.port} did not start" in done.error
    assert show.report([done], 1.0, write=True) == 1
    assert "nothing was written" in capsys.readouterr().out


def test_the_pages_are_written_from_the_figures():
    entry = Entry("F1", "a fault", "redis", "function", "keyed", lambda *_: good)
    good = Result(figures=Figures(keys=2, operations=7000), passed=True, promise="0 doubled")
    saved = page.Saved(seconds=3, machine="2 cores", cells=[run(None, entry)])
    text = page.rendered(saved)
    assert "## F1: a fault" in text
    assert "| redis | function | keyed | 2 | 7,000 | 0 | 0 | 0 | 0 doubled |  |" in text
    once = page.inserted("# Page\n", page.summary(saved))
    assert "| F1 | a fault | 1 | 7,000 | 0 | 0 |  |" in once
    assert page.inserted(once, page.summary(saved)) == once


def test_the_pages_say_what_the_last_run_found():
    saved = page.saved()
    assert page.PAGE.read_text() == page.rendered(saved)
    assert page.summary(saved) in page.PROMISES.read_text()
    assert all(one.passed for one in saved.cells)
    assert {one.row for one in saved.cells} == {one.row for one in CELLS}
