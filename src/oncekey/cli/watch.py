"""`oncekey watch`: show the newest records and the counts until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import nlargest
from itertools import islice
from time import monotonic
from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.text import Text

from oncekey import Record, StoreError
from oncekey.cli.errors import WRONG, CommandError
from oncekey.cli.ls import Wanted, status_of
from oncekey.cli.options import Json, Redact, StoreUrl, opened_records
from oncekey.cli.output import COLOURS, console, fields_of, fitting, print_json, rows_of, table_of
from oncekey.cli.stats import fields_of_counts
from oncekey.core.record import Status
from oncekey.inspection.listing import count_records, fill_page, find_record, list_records
from oncekey.inspection.text import (
    basis_of,
    iso,
    lapsed_among,
    moment,
    now,
    number_of,
    printable,
)
from oncekey.policy import seconds
from oncekey.stores import Store
from oncekey.stores.browse import RecordCounts, RecordQuery, ScopeAndKey
from oncekey.stores.url import safe_url

_WALK: Final = 0.2
"""How many seconds one view may scan a store that keeps no order by time."""
_PAGE: Final = 200


class WatchView(Struct, kw_only=True):
    """The counts, the newest records, and how many came since the view before."""

    counts: RecordCounts
    records: list[Record]
    new: int | None
    """The number of records created since the view before; None if it is not known."""
    complete: bool
    """Whether the whole store has been scanned. If not, there may be newer records."""


class Watcher:
    """Read the newest records of a store again and again."""

    def __init__(self, store: Store, status: Status | None) -> None:
        self._store = store
        self._status: Status | None = status
        self._seen: dict[ScopeAndKey, Record] = {}
        self._cursor: str | None = None
        self._walked = False
        self._newest = 0

    def view(self, rows: int) -> WatchView:
        """Return the present counts and at most `rows` of the newest records."""
        told = count_records(self._store)
        page = fill_page(self._store, RecordQuery(status=self._status, limit=max(rows, 1)), _WALK)
        if not page.newest_first:
            return WatchView(counts=told, records=self._walk(rows), new=None, complete=self._walked)
        new = sum(record.created > self._newest for record in page.records)
        known, self._newest = (
            self._newest,
            max([self._newest, *(record.created for record in page.records)]),
        )
        return WatchView(
            counts=told,
            records=page.records[:rows],
            new=new if known and new < rows else None,
            complete=True,
        )

    def _walk(self, rows: int) -> list[Record]:
        """Scan on for a while. Return the newest records found so far, read again."""
        end = monotonic() + _WALK
        again = [find_record(self._store, *place) for place in self._seen]
        self._seen = {}
        self._keep([record for record in again if record is not None], rows)
        while monotonic() < end:
            ask = RecordQuery(status=self._status, after=self._cursor, limit=_PAGE)
            page = list_records(self._store, ask)
            self._keep(page.records, rows)
            self._cursor = page.after
            if page.after is None:
                self._walked = True
                break
        return sorted(self._seen.values(), key=lambda one: one.created, reverse=True)

    def _keep(self, records: list[Record], rows: int) -> None:
        fit = [one for one in records if self._status in (None, one.status)]
        self._seen |= {(one.scope, one.key): one for one in fit}
        kept = nlargest(rows, self._seen.values(), key=lambda one: one.created)
        self._seen = {(one.scope, one.key): one for one in kept}


HEAD: Final = 5
"""The number of lines on the screen that are not records."""


class Screen:
    """Draw one view. While the store does not answer, draw the last view."""

    def __init__(self, url: str, every: str, *, redact: bool) -> None:
        """Draw the store at `url`, which is read every `every`."""
        self._where = printable(safe_url(url))
        self._every = every
        self._redact = redact
        self._last: WatchView | None = None
        self._out = console()

    def drawn(self, view: WatchView | StoreError, size: ConsoleDimensions) -> RenderableType:
        """Return the whole screen."""
        trouble = view if isinstance(view, StoreError) else None
        if isinstance(view, WatchView):
            self._last = view
        parts: list[RenderableType] = [self._title(size.width)]
        if self._last is not None:
            parts.append(_counts(self._last))
        parts.append(_remark(self._last, trouble))
        parts.append(Text(""))
        if self._last is not None and self._last.records:
            more = len(_counts(self._last).wrap(self._out, size.width)) - 1
            shown = self._last.records[: max(size.height - HEAD - more, 1)]
            rows = rows_of(shown, self._last.counts.now, redact=self._redact)
            parts.append(table_of(fitting(rows, size.width), fold=False))
        return Group(*parts)

    def _title(self, width: int) -> Text:
        right = f"{moment(now())[11:19]} UTC, every {self._every}, Ctrl-C ends"
        left = f"oncekey  {self._where}"
        if len(left) + len(right) + 2 > width:
            return Text(left, style="bold", no_wrap=True, overflow="ellipsis")
        return Text.assemble((left, "bold"), " " * (width - len(left) - len(right)), (right, "dim"))


def _counts(view: WatchView) -> Text:
    line = Text(overflow="fold")
    for status in view.counts.by_status:
        line.append(f"{printable(status)} ", style=COLOURS.get(status, ""))
        line.append(number_of(view.counts, status))
        if status == "running" and view.counts.lapsed:
            line.append(f" ({lapsed_among(view.counts)})", style=COLOURS["lapsed"])
        line.append("   ")
    line.append(f"total {number_of(view.counts)}", style="bold")
    return line


def _remark(view: WatchView | None, trouble: StoreError | None) -> Text:
    """Return how exact the counts are, or why there are no newer ones."""
    if trouble is not None:
        return Text(printable(str(trouble)), style="bold red", no_wrap=True, overflow="ellipsis")
    words: list[str] = []
    if view is not None and not view.counts.exact:
        words.append(basis_of(view.counts))
    if view is not None and not view.complete:
        words.append("still walking over the store for the newest")
    if view is not None and view.new:
        words.append(f"{view.new} new since the last look")
    return Text("; ".join(words), style="dim", no_wrap=True, overflow="ellipsis")


_LINES: Final = 20
"""The number of records in one line of JSON."""


def watch(
    *,
    ctx: typer.Context,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often to look: 500ms, 2s, 1min.")
    ] = "2s",
    status: Annotated[Wanted | None, typer.Option(help="Only records with this status.")] = None,
    count: Annotated[
        int, typer.Option(min=0, metavar="N", help="End after so many looks; 0: at Ctrl-C.")
    ] = 0,
    redact: Redact = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Watch the newest records and the counts, until Ctrl-C."""
    pause = seconds(every, "--every")
    out = console()
    if not as_json and not out.is_terminal:
        msg = "watch needs a terminal; --json prints a line for each look instead"
        raise CommandError(msg, WRONG)
    with opened_records(ctx, store) as once, _until_told():
        watching = Watcher(once.store, status_of(status))
        first = watching.view(_LINES if as_json else out.height - HEAD)
        if as_json:
            again = _views(watching, first, pause, lambda: _LINES)
            for view in islice(again, count or None):
                _print(view, redact=redact)
            return
        frame = Screen(ctx.obj.url, every, redact=redact)
        again = _views(watching, first, pause, lambda: out.height - HEAD)
        with Live(console=out, screen=True, auto_refresh=False) as live:
            for view in islice(again, count or None):
                live.update(frame.drawn(view, out.size), refresh=True)


def _views(
    watching: Watcher, first: WatchView, pause: float, rows: Callable[[], int]
) -> Iterator[WatchView | StoreError]:
    """Yield one view after the other. Yield the error while the store does not answer."""
    yield first
    while True:
        time.sleep(pause)
        try:
            yield watching.view(rows())
        except StoreError as error:
            yield error


def _print(view: WatchView | StoreError, *, redact: bool) -> None:
    """Print one line of JSON and flush it."""
    if isinstance(view, StoreError):
        print_json({"at": iso(now()), "error": str(view)}, at_once=True)
    else:
        present = view.counts.now
        told = [fields_of(one, None, present, redact=redact) for one in view.records]
        for fields in told:
            del fields["result_size"]
        head = {"at": iso(present), **fields_of_counts(view.counts)}
        fields = {**head, "new": view.new, "complete": view.complete, "records": told}
        print_json(fields, at_once=True)
    sys.stdout.flush()


@contextmanager
def _until_told() -> Iterator[None]:
    """End the block at Ctrl-C or SIGTERM, so that the terminal is restored."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if main else None
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
