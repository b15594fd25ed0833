"""Charts and pictures that we draw, in a real browser: no word is cut off, on light and on dark."""

import math

import pytest

from bench.architecture import IMAGES
from bench.report.charts import charts
from bench.report.rows import Report, Row
from bench.settings import FULL
from bench.timing import Spread
from tests.project.test_bench import ROWS

pytestmark = pytest.mark.xdist_group("browser")

EYE = (0.2126, 0.7152, 0.0722)
LONGEST = "Peers on SQLite, synchronous=NORMAL, duplicate, cache off, 64 tasks"
BOXES = """() => [...document.querySelectorAll("text")].map(
    text => [text.textContent, text.getBBox().x, text.getBBox().x + text.getBBox().width])"""
WIDTH = "() => document.querySelector('svg').viewBox.baseVal.width"
SPILT = """() => [...document.querySelectorAll("rect.box")].flatMap(rect => {
    const box = rect.getBBox()
    const inside = text => text.x >= box.x && text.x < box.x + box.width
        && text.y >= box.y && text.y < box.y + box.height
    return [...document.querySelectorAll("text")].filter(text => inside(text.getBBox())).filter(
        text => text.getBBox().x + text.getBBox().width > box.x + box.width - 4
            || text.getBBox().y + text.getBBox().height > box.y + box.height
    ).map(text => text.textContent)})"""
COLOURS = """() => ["rect.page", "text", "text.dim"].map(
    name => getComputedStyle(document.querySelector(name)).fill)"""


def drawn() -> dict[str, str]:
    rows = [
        Row(
            id=name,
            title=LONGEST,
            value=1.0,
            unit="calls/s",
            against="asgi-idempotency-header",
            ratio=Spread(123.45, 0.01, 200.0),
            target=target and target.replace("1.0x", "0.85x"),
            met=False if target else None,
        )
        for name, target in ROWS.items()
    ]
    pictures = {path.stem: path.read_text("utf-8") for path in IMAGES.glob("architecture-*.svg")}
    assert pictures
    return charts(Report(FULL, {}, rows)) | pictures


def brightness(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    return sum(math.pow(part, 2.2) * weight for part, weight in zip(parts, EYE, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_word_is_cut_off_or_too_pale(new_context, scheme):
    page = new_context(color_scheme=scheme).new_page()
    for name, picture in drawn().items():
        page.set_content(picture)
        boxes, width = page.evaluate(BOXES), page.evaluate(WIDTH)
        assert len(boxes) > 5
        for words, start, end in boxes:
            assert 4 <= start < end <= width - 4, (name, words)
        assert page.evaluate(SPILT) == [], name
        ground, *inks = map(brightness, page.evaluate(COLOURS))
        for ink in inks:  # as the WCAG ask for text of this size
            low, high = sorted((ground, ink))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, scheme)
        assert (ground < 0.5) == (scheme == "dark")
