"""The page as the server renders it: with everything that happened so far, without any script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template

from examples.events.job import PLAN, TITLES, TOTAL
from oncekey.events import Event, Page

STATIC = Path(__file__).parent / "static"


def rendered(job: str, page: Page, root: str) -> str:
    """The page of a job. Its script goes on after the event that was rendered last."""
    done = Counter(event.stage for event in page.events)
    return Template((STATIC / "page.html").read_text("utf-8")).substitute(
        root=escape(root),
        job=escape(job),
        after=escape("" if page.cursor is None else str(page.cursor)),
        count=len(page.events),
        total=TOTAL,
        percent=round(100 * len(page.events) / TOTAL),
        stages="\n".join(_stage(name, done[name]) for name in PLAN),
        rows="\n".join(_row(event) for event in page.events),
    )


def start(root: str) -> str:
    """The page on which a job is started."""
    return Template((STATIC / "start.html").read_text("utf-8")).substitute(root=escape(root))


def _stage(name: str, done: int) -> str:
    total = len(PLAN[name])
    state = "done" if done == total else "running" if done else "waiting"
    parts: Iterable[str] = (
        f'<li data-stage="{name}" data-done="{done}" data-total="{total}" data-state="{state}">',
        '<span class="mark" aria-hidden="true"></span>',
        f'<span class="name">{escape(TITLES[name])}</span>',
        f'<span class="count"><span class="done">{done}</span> of {total}</span></li>',
    )
    return "".join(parts)


def _row(event: Event) -> str:
    text = escape(str(event.data.get("text", "")))
    return (
        f'<li data-id="{escape(event.id)}"><span class="offset">{event.offset}</span>'
        f'<span class="stage">{escape(event.stage)} {event.seq}</span>'
        f'<span class="text">{text}</span></li>'
    )
