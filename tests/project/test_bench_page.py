"""docs/benchmarks.md and its charts are what the results beside them give."""

import dataclasses
from xml.etree import ElementTree as ET

import pytest

from bench import __main__ as bench
from bench.report.charts import CHARTS, charts
from bench.report.page import KEPT, PAGE, QUESTIONS, page, write
from bench.report.rows import Report, Row, joined
from bench.report.saved import NotOursError, as_json, from_json
from bench.run import PARTS
from bench.settings import FULL, QUICK
from bench.timing import Spread
from tests.project.test_bench import ROWS

SVG = "{http://www.w3.org/2000/svg}"


def row(name: str, target: str = "at least 1.0x", **told) -> Row:
    usual = {
        "title": f"A <b>row</b> of {name}",
        "value": 1234.5,
        "unit": "calls/s",
        "against": "the raw one",
        "against_value": 2469.0,
        "ratio": Spread(0.5, 0.4, 0.6),
        "met": False if target else None,
        "remark": "a remark",
    }
    return Row(id=name, target=target, **{**usual, **told})


def report(*rows: Row) -> Report:
    return Report(FULL, {"Python": "3"}, list(rows), tuple(PARTS))


EVERY = report(*(row(name, target) for name, target in ROWS.items()))


def test_results_come_back_as_they_were_written():
    every = report(row("one"), row("two", "", ratio=None, against_value=None))
    assert from_json(as_json(every)) == every


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": {"rounds": 1}, "rows": []}'])
def test_results_of_something_else_are_refused(text):
    with pytest.raises(NotOursError, match="not results of this version"):
        from_json(text)


def test_the_page_says_what_was_measured():
    told = page(report(row("redis-new")))
    assert "python -m bench --write" in told
    assert (
        "| 1,230/s | the raw one | 2,470/s | 0.50x (0.40 to 0.60) | at least 1.0x | MISSED |"
        in told
    )
    assert f"medians of {FULL.rounds} rounds" in told


def test_every_row_is_on_the_page_once_below_its_question():
    told = page(EVERY)
    for measured in EVERY.rows:
        assert told.count(f"| {measured.title} |") == 1, measured.id
    for asked in QUESTIONS:
        assert f"\n## {asked.heading}\n\n![" in told
    assert {asked.chart for asked in QUESTIONS} == {chart.name for chart in CHARTS}


def test_the_kept_page_and_its_charts_are_those_of_the_kept_results():
    kept = from_json(KEPT.read_text("utf-8"))
    assert {measured.id: measured.target for measured in kept.rows} == ROWS
    assert kept.settings == FULL
    assert PAGE.read_text("utf-8") == page(kept)
    for name, drawn in charts(kept).items():
        assert (PAGE.parent / "images" / f"benchmarks-{name}.svg").read_text("utf-8") == drawn


def test_a_page_is_written_from_results_that_were_kept(tmp_path, monkeypatch, capsys):
    written = []
    monkeypatch.setattr(bench, "write", written.append)
    results = tmp_path / "results.json"
    results.write_text(as_json(EVERY), "utf-8")
    assert bench.main(["--page", str(results)]) == 0
    assert written == [EVERY]
    assert "written from results.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "must name a file that can be read"),
        ("{}", "not results of this version"),
        (as_json(dataclasses.replace(EVERY, settings=QUICK)), "nothing worth writing down"),
        (as_json(dataclasses.replace(EVERY, parts=tuple(PARTS)[1:])), "these results lack sqlite"),
    ],
)
def test_a_page_is_not_written_from_anything_else(tmp_path, monkeypatch, capsys, content, told):
    monkeypatch.setattr(bench, "write", pytest.fail)
    results = tmp_path / "results.json"
    if content is not None:
        results.write_text(content, "utf-8")
    with pytest.raises(SystemExit):
        bench.main(["--page", str(results)])
    assert told in capsys.readouterr().err


def test_parts_that_are_measured_later_take_the_place_of_their_rows_alone(tmp_path, monkeypatch):
    kept = tmp_path / "benchmarks.json"
    kept.write_text(as_json(EVERY), "utf-8")
    monkeypatch.setattr(bench, "KEPT", kept)
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    again = row("events-router", ROWS["events-router"], value=7.0, met=True)
    later = Report(FULL, {"Python": "4"}, [again], ("events",))
    monkeypatch.setattr(bench, "run", lambda *_args, **_options: later)
    written = []
    monkeypatch.setattr(bench, "write", written.append)
    assert bench.main(["events", "--write"]) == 0
    assert written == [joined(EVERY, later)]
    rows = [again if one.id == again.id else one for one in EVERY.rows]
    assert (written[0].rows, written[0].parts) == (rows, tuple(PARTS))
    assert "| events, in a later run | Python 4 |" in page(written[0])


def test_what_is_written_belongs_together(tmp_path):
    (tmp_path / "images").mkdir()
    write(EVERY, tmp_path)
    assert from_json((tmp_path / KEPT.name).read_text("utf-8")) == EVERY
    text = (tmp_path / PAGE.name).read_text("utf-8")
    assert text == page(EVERY)
    drawn = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert drawn == sorted(f"benchmarks-{chart.name}.svg" for chart in CHARTS)
    assert all(f"](images/{name})" in text for name in drawn)


def test_every_chart_has_rows_and_names_only_rows_that_exist():
    for chart in CHARTS:
        for name in chart.rows:
            assert any(known.startswith(name) for known in ROWS), name


def test_a_bar_is_as_long_as_its_ratio_and_says_by_word_and_colour_how_it_stands():
    rows = [
        row("redis-new", ratio=Spread(0.5, 0.5, 0.5)),
        row("redis-duplicate", ratio=Spread(1.0, 1.0, 1.0), met=True),
        row("postgres-duplicate", "", ratio=Spread(0.25, 0.25, 0.25)),
    ]
    picture = ET.fromstring(charts(report(*rows))["one"])  # noqa: S314 - it is our own
    bars = {bar.get("class"): float(bar.get("width")) for bar in picture.iter(f"{SVG}rect")}
    assert bars["ok"] == pytest.approx(2 * bars["missed"], rel=0.01)
    assert bars["ok"] == pytest.approx(4 * bars["free"], rel=0.01)
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert words.count("at least 1.0x, MISSED") == 1
    assert words.count("at least 1.0x") == 1
    targets = [line for line in picture.iter(f"{SVG}line") if line.get("class") == "target"]
    assert len(targets) == 2


def test_beside_peers_twice_as_fast_and_half_as_fast_are_as_far_from_the_line():
    rows = [
        row("peers-redis-new-one", ratio=Spread(2.0, 2.0, 2.0), met=True),
        row("peers-redis-new-task", ratio=Spread(0.5, 0.5, 0.5)),
        row("peers-redis-new-tasks", ratio=Spread(1e9, 1e9, float("inf")), met=True),
    ]
    picture = ET.fromstring(charts(report(*rows))["peers"])  # noqa: S314 - it is our own
    bars = [bar for bar in picture.iter(f"{SVG}rect") if bar.get("class") in ("ok", "missed")]
    faster, slower, out_of_sight = bars
    assert faster.get("width") == slower.get("width")
    assert float(slower.get("x")) < float(faster.get("x"))
    assert float(out_of_sight.get("x")) + float(out_of_sight.get("width")) <= 500


def test_what_was_not_measured_is_not_drawn():
    assert charts(report(row("redis-new", ratio=None, met=None), row("inbox-purge"))) == {}
