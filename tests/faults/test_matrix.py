"""Three rows of the fault matrix, small; `make faults` runs the whole."""

from pathlib import Path

import pytest

from tests.faults.matrix import lab as lab_module
from tests.faults.matrix import page, rows, show
from tests.faults.matrix.cells import CELLS, Entry
from tests.faults.matrix.lab import Result
from tests.faults.matrix.points import Failpoints
from tests.faults.matrix.program import STORES, chosen, laboratory, main, run
from tests.faults.matrix.soak import GROUPS, Soaked, put_away
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


def test_a_soak_has_workers_for_every_store():
    assert set(GROUPS) == set(STORES)


def test_rows_and_stores_that_there_are_not_are_refused():
    for words in (["--rows", "F99"], ["--stores", "oracle"], ["--soak", "1s"]):
        with pytest.raises(SystemExit, match=r"no row F99|no store oracle|a soak takes"):
            main(words)
    with pytest.raises(SystemExit, match="none of these rows"):
        main(["--rows", "F7", "--stores", "sqlite"])
    with pytest.raises(SystemExit, match="whole rows"):
        main(["--stores", "sqlite", "--write"])
    with pytest.raises(ValueError, match="no failpoint"):
        Failpoints(["after_efect:kill@0.1"], "seed")


def test_a_server_that_does_not_start_fails_its_cell_and_the_run(lab, tmp_path, capsys):
    server = RedisServer(tmp_path, **{"no-such-setting": "1"})
    entry = Entry("F1", "no server", "redis", "function", "keyed", lambda *_: server.start())
    done = run(lab, entry)
    assert (done.passed, done.result) == (False, None)
    assert f"port {server.port} did not start" in done.error
    assert show.report([done], 1.0, page.write_matrix) == 1
    assert "nothing was written" in capsys.readouterr().out


def test_what_broke_a_promise_leaves_its_histories(lab, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lab_module, "KEPT", tmp_path / "kept")

    def red(lab, store):
        (lab.folder() / "history").write_text(store)
        return Result(figures=Figures(doubled=1), passed=False, promise="0 doubled")

    for _ in range(2):  # what was left before makes room
        done = run(lab, Entry("F1", "a fault", "redis", "function", "keyed", red))
    [place] = done.kept
    assert Path(place, "history").read_text() == "redis"
    assert show.report([done], 1.0) == 1
    assert f"histories: {place}" in capsys.readouterr().out


def test_a_red_round_of_a_soak_leaves_its_histories_and_a_clean_one_does_not(
    lab, tmp_path, monkeypatch
):
    monkeypatch.setattr(lab_module, "KEPT", tmp_path / "kept")
    soaked = Soaked(seconds=1.0)
    red, clean = lab.folder(), lab.folder()
    put_away(lab, red, "soak redis http 3", Figures(lost=1), soaked)
    put_away(lab, clean, "soak redis http 4", Figures(), soaked)
    assert soaked.kept == [str(tmp_path / "kept" / "soak-redis-http-3")]
    assert (tmp_path / "kept" / "soak-redis-http-3").is_dir()
    assert not red.exists()
    assert not clean.exists()


def test_the_pages_are_written_from_the_figures(lab):
    entry = Entry("F1", "a fault", "redis", "function", "keyed", lambda *_: good)
    good = Result(figures=Figures(keys=2, operations=7000), passed=True, promise="0 doubled")
    saved = page.Saved(seconds=3, machine="2 cores", cells=[run(lab, entry)])
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
    for place, rows_there in page.FAIL_OVERS.items():
        assert page.failovers(saved, rows_there) in place.read_text()
    assert all(one.passed for one in saved.failovers)
    assert {one.row for one in saved.failovers} == set(rows.FAIL_OVERS)
    assert all(one.passed for one in saved.cells)
    assert {one.row for one in saved.cells} == {one.row for one in CELLS}
