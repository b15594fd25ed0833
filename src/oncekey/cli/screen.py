"""What `oncekey watch` draws: the counts, and as many of the newest records as fit."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.text import Text

from oncekey import StoreError
from oncekey.cli.render import COLOURS, fitting, rows_of, table_of
from oncekey.cli.text import printable
from oncekey.cli.times import exactly, now
from oncekey.cli.watching import View

HEAD: Final = 5
"""Lines that are not records."""


class Frame:
    """The picture of one view; while the store does not answer, that of the last one."""

    def __init__(self, url: str, every: str, *, redact: bool) -> None:
        """For this store, looked at every so often."""
        self._where = _without_secrets(url)
        self._every = every
        self._redact = redact
        self._last: View | None = None

    def drawn(self, view: View | StoreError, size: ConsoleDimensions) -> RenderableType:
        """The whole screen."""
        trouble = view if isinstance(view, StoreError) else None
        if isinstance(view, View):
            self._last = view
        parts: list[RenderableType] = [self._title(size.width)]
        if self._last is not None:
            parts.append(_counts(self._last))
        parts.append(_remark(self._last, trouble))
        parts.append(Text(""))
        if self._last is not None and self._last.records:
            shown = self._last.records[: max(size.height - HEAD, 1)]
            rows = rows_of(shown, self._last.counts.now, redact=self._redact)
            parts.append(table_of(fitting(rows, size.width), fold=False))
        return Group(*parts)

    def _title(self, width: int) -> Text:
        right = f"{exactly(now())[11:19]} UTC, every {self._every}, Ctrl-C ends"
        left = f"oncekey  {self._where}"
        if len(left) + len(right) + 2 > width:
            return Text(left, style="bold", no_wrap=True, overflow="ellipsis")
        return Text.assemble((left, "bold"), " " * (width - len(left) - len(right)), (right, "dim"))


def _counts(view: View) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for status, count in view.counts.by_status.items():
        line.append(f"{printable(status)} ", style=COLOURS.get(status, ""))
        line.append(f"{count:,}   ")
    line.append(f"total {view.counts.total:,}", style="bold")
    return line


def _remark(view: View | None, trouble: StoreError | None) -> Text:
    """What the numbers are worth, or why there are no newer ones."""
    if trouble is not None:
        return Text(printable(str(trouble)), style="bold red", no_wrap=True, overflow="ellipsis")
    words: list[str] = []
    if view is not None and not view.counts.exact:
        words.append(f"counts sampled from {view.counts.looked_at:,} records")
    if view is not None and not view.complete:
        words.append("still walking over the store for the newest")
    if view is not None and view.new:
        words.append(f"{view.new} new since the last look")
    return Text("; ".join(words), style="dim", no_wrap=True, overflow="ellipsis")


def _without_secrets(url: str) -> str:
    """Where the store is; a password never reaches the screen."""
    parts = urlsplit(url)
    if not parts.netloc:
        return printable(url.partition("?")[0])
    return printable(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
