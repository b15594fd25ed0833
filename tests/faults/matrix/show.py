"""What is seen on the terminal while the matrix runs, and afterwards."""

import sys
import time
from collections.abc import Callable, Iterator

from tests.faults.matrix import page
from tests.faults.matrix.cells import Done, Entry
from tests.faults.matrix.soak import Soaked

WIDTH = 30


def bar(part: float) -> str:
    """How far it is."""
    filled = round(WIDTH * min(1.0, part))
    return "[" + "#" * filled + "." * (WIDTH - filled) + "]"


def say(words: str) -> None:
    """One line of the report."""
    sys.stdout.write(f"{words}\n")


def tell(words: str) -> None:
    """One line, over the last one where the terminal can do that."""
    sys.stderr.write(f"\r{words:<110}" if sys.stderr.isatty() else f"{words}\n")
    sys.stderr.flush()


def histories(kept: list[str]) -> None:
    """Where to look for the reason."""
    for place in kept:
        say(f"      histories: {place}")


def clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r" + " " * 110 + "\r")


def going_through(entries: list[Entry]) -> Iterator[Entry]:
    """The entries, with a bar that says how far it is."""
    started = time.monotonic()
    for number, entry in enumerate(entries):
        passed = time.monotonic() - started
        tell(f"{bar(number / len(entries))} {number}/{len(entries)} {passed:.0f} s  {entry.name}")
        yield entry
    clear()


def soaking(length: float) -> Callable[[Soaked], None]:
    """Tells how far a soak is after each of its rounds."""

    def told(soaked: Soaked) -> None:
        tell(
            f"{bar(soaked.seconds / length)} {soaked.seconds:.0f} s "
            f" {soaked.operations:,} operations, {soaked.kills} kills, {soaked.stops} pauses,"
            f" {soaked.outages} outages"
        )

    return told


def report(
    done: list[Done], seconds: float, write: Callable[[list[Done]], None] | None = None
) -> int:
    """The table on the terminal; the exit code says whether every promise was kept."""
    say("      row  store     surface    mode          keys   asked  again doubled  lost")
    for one in done:
        figures = one.result.figures if one.result else None
        verdict = "ok " if one.passed else "RED"
        head = f"{verdict}   {one.row:4} {one.store:9} {one.surface:10} {one.mode:10}"
        if one.result is None or figures is None:
            say(f"{head} {one.error}")
            histories(one.kept)
            continue
        notes = ", ".join(f"{name} {what}" for name, what in one.result.notes.items())
        say(
            f"{head} {figures.keys:7} {figures.operations:7} {figures.asked_again:6}"
            f" {figures.doubled:7} {figures.lost:5}  {notes}"
        )
        if not one.passed:
            say(f"      promised: {one.result.promise}\n      {figures}")
            histories(one.kept)
    red = [one for one in done if not one.passed]
    total = sum(one.result.figures.operations for one in done if one.result)
    say(
        f"{len(done) - len(red)} of {len(done)} cells as promised, {total:,} operations,"
        f" {seconds:.0f} s"
    )
    if write is not None and not red:
        write(done)
    elif write is not None:
        say("nothing was written: the pages show a matrix that is as promised")
    return 1 if red else 0


def soak_report(soaked: Soaked, *, write: bool) -> int:
    """What a soak came to."""
    clear()
    for store, one in soaked.stores.items():
        say(
            f"{'ok ' if one.clean else 'RED'}   {store:9} {one.keys:8,} keys {one.operations:9,}"
            f" operations, {one.asked_again} effects asked for again, {one.doubled} doubled,"
            f" {one.lost} lost, {one.mismatched} answered in two ways, {one.stuck} stuck,"
            f" {one.tangled} out of order"
        )
    say(
        f"{soaked.operations:,} operations in {soaked.seconds:.0f} s,"
        f" {soaked.kills} workers killed, {soaked.stops} stopped, {soaked.outages} servers killed,"
        f" {soaked.replies_lost} replies lost"
    )
    histories(soaked.kept)
    if write and soaked.passed:
        page.write_soak(soaked)
    return 0 if soaked.passed else 1
