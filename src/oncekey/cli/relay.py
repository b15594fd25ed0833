"""`oncekey relay`: send the messages of an outbox until it is stopped."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncekey.cli.options import Json, StoreUrl, remember_store
from oncekey.cli.service import stopped_by_signals, told
from oncekey.errors import ConfigurationError, StoreError
from oncekey.policy import seconds

if TYPE_CHECKING:
    from oncekey.outbox import Relay, RelayEvent

_COUNTED: Final = ("sent", "failed", "unreachable", "dead", "late", "purged")


class RelayCounts:
    """Count what a relay has done so far, and ask what waits."""

    relay: Relay | None = None

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, event: RelayEvent, /) -> None:
        """Add what the relay reports to the counts."""
        with self._lock:
            self._counts[event.name] += event.count

    def fields(self) -> dict[str, Any]:
        """Return the counts and what waits as fields, for `--json`."""
        with self._lock:
            counted = {name: self._counts[name] for name in _COUNTED}
        waiting: dict[str, Any] = dict.fromkeys(("pending", "oldest_seconds", "dead_letters"))
        if self.relay is not None:
            try:
                figures = self.relay.figures()
            except StoreError:  # the database is out of reach; the relay says so and goes on
                pass
            else:
                oldest = round(figures.oldest, 3)
                waiting = {
                    "pending": figures.pending,
                    "oldest_seconds": oldest,
                    "dead_letters": figures.dead,
                }
        return counted | waiting

    def line(self) -> str:
        """Return the counts as one line, for people."""
        fields = self.fields()
        counts = ", ".join(f"{fields[name]} {name}" for name in _COUNTED)
        if fields["pending"] is None:
            return counts
        return f"{counts}; {fields['pending']} wait, the oldest for {fields['oldest_seconds']:g} s"


def relay(
    *,
    ctx: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(metavar="[URL]", help="The database with the outbox; else the store."),
    ] = None,
    to: Annotated[
        list[str],
        typer.Option(
            metavar="URL",
            help="nats://, amqp://, redis://, kafka://, https://, rq+redis://, or module:object as "
            "celery://shop.jobs:app; as orders.*=URL for these destinations alone.",
        ),
    ],
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Take at most so many.")] = 100,
    lease: Annotated[
        str, typer.Option(metavar="TIME", help="How long others leave alone what it has taken.")
    ] = "30s",
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Give up a message without an answer.")
    ] = "10s",
    max_tries: Annotated[
        int, typer.Option(min=1, metavar="N", help="What fails so often is dead.")
    ] = 20,
    skip_dead: Annotated[
        bool, typer.Option("--skip-dead", help="Send what follows a dead one of its key.")
    ] = False,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="How long sent messages are kept.")
    ] = "1d",
    poll: Annotated[
        str, typer.Option(metavar="TIME", help="How often to look while nothing comes.")
    ] = "1s",
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often to say what was done; 0: in the end.")
    ] = "1min",
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Send what was committed to an outbox, until SIGTERM or Ctrl-C."""
    from oncekey.outbox import Relay

    typed = source if source is not None else store
    if typed is not None:
        remember_store(ctx, typed, typed=True)
    period = seconds(every, "every", zero=True)
    counts = RelayCounts()
    sys.path.insert(0, str(Path.cwd()))  # where celery://shop.jobs:app is looked for
    made = Relay(
        ctx.obj.url,
        _routes(to),
        batch=batch,
        lease=lease,
        timeout=timeout,
        max_tries=max_tries,
        on_dead="skip" if skip_dead else "block",
        keep=keep,
        poll=poll,
        observers=(counts,),
    )
    counts.relay = made
    try:
        with stopped_by_signals(made), told(counts, period, as_json=as_json):
            made.run()
    finally:
        made.close()


def _routes(given: list[str]) -> dict[str, str]:
    """Return the URL for each pattern. Raise ConfigurationError if one is given twice."""
    routes: dict[str, str] = {}
    for one in given:
        pattern, equals, url = one.partition("=")
        if not equals or "://" in pattern:
            pattern, url = "*", one
        if pattern in routes:
            msg = f"--to says twice where {pattern!r} goes; give each of them a pattern of its own"
            raise ConfigurationError(msg)
        routes[pattern] = url
    return routes
