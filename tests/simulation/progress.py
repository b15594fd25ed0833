"""A bar on a terminal; elsewhere a line now and then."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINES = 10


@contextmanager
def bar(what: str, whole: int) -> Iterator[Callable[[int], None]]:
    """How to say that so many more are done."""
    if sys.stdout.isatty():
        yield from _drawn(what, whole)
    else:
        yield from _written(what, whole)


def _drawn(what: str, whole: int) -> Iterator[Callable[[int], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as drawn:
        task = drawn.add_task(what, total=whole)
        yield lambda more: drawn.advance(task, more)


def _written(what: str, whole: int) -> Iterator[Callable[[int], None]]:
    done = told = 0

    def advance(more: int) -> None:
        nonlocal done, told
        done += more
        if done * LINES // whole > told:
            told = done * LINES // whole
            sys.stdout.write(f"{done:,} of {whole:,} {what}\n")
            sys.stdout.flush()

    yield advance
