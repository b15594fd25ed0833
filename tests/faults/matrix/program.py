"""The program: which cells are asked for, how far it is, what came of it."""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.matrix import page, rows, show
from tests.faults.matrix.cells import CELLS, Done, Entry
from tests.faults.matrix.crowd import Herd
from tests.faults.matrix.lab import Lab
from tests.faults.matrix.soak import length_of, soak_in
from tests.faults.matrix.store_servers import Places

STORES = ("sqlite", "redis", "postgres", "mariadb")
ROWS = rows.ROWS
OPERATIONS = 100_000
"""How many operations each of the rows about fail-over has with --failovers."""


@contextmanager
def laboratory(*, small: bool) -> Iterator[Lab]:
    """Processes and servers that end with the block, in folders that are gone then."""
    with tempfile.TemporaryDirectory(prefix="oncekey-faults-") as name:
        folder = Path(name)
        herd = Herd()
        places = Places(folder)
        try:
            yield Lab(herd, places, folder, small=small)
        finally:
            try:
                herd.close()
            finally:
                places.close()


def run(lab: Lab, entry: Entry) -> Done:
    """The cell, run; one that breaks has failed, and the others go on."""
    started, before = time.monotonic(), len(lab.made)
    result, error = None, ""
    try:
        result = entry.run(lab, entry.store)
    except Exception as trouble:  # noqa: BLE001 - told in the table; the run fails for it
        error = f"{type(trouble).__name__}: {trouble}"
    done = Done(
        row=entry.row,
        title=entry.title,
        store=entry.store,
        surface=entry.surface,
        mode=entry.mode,
        seconds=round(time.monotonic() - started, 1),
        result=result,
        error=error,
    )
    if not done.passed:
        made = enumerate(lab.made[before:])
        done.kept = [str(lab.keep(folder, f"{entry.name} {number}")) for number, folder in made]
    return done


def chosen(wanted_rows: list[str], wanted_stores: list[str]) -> list[Entry]:
    """The cells of these rows and stores. Asking for what there is not is an error."""
    unknown = set(wanted_rows) - set(ROWS)
    if unknown:
        raise SystemExit(f"there is no row {', '.join(sorted(unknown))}; rows are F1 to {ROWS[-1]}")
    strangers = set(wanted_stores) - set(STORES)
    if strangers:
        raise SystemExit(f"there is no store {', '.join(sorted(strangers))}: {', '.join(STORES)}")
    found = [one for one in CELLS if one.row in wanted_rows and one.store in wanted_stores]
    if not found:
        raise SystemExit("none of these rows is run on these stores")
    return sorted(found, key=lambda one: (int(one.row[1:]), one.mode, one.surface))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.matrix")
    parser.add_argument("--rows", default=",".join(ROWS), help="for example F1,F4")
    parser.add_argument("--stores", default=",".join(STORES), help="for example sqlite,redis")
    parser.add_argument("--small", action="store_true", help="fewer keys, fewer troubles")
    parser.add_argument("--write", action="store_true", help="write the pages of the docs")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    parser.add_argument(
        "--failovers",
        type=int,
        default=0,
        metavar="N",
        help="only the rows about fail-over, with so many in each, and 100,000 operations",
    )
    parser.add_argument("--soak", default="", metavar="TIME", help="row F24 for so long: 10min")
    said = parser.parse_args(arguments)
    stores = said.stores.split(",")
    if said.soak:
        length = length_of(said.soak, small=said.small)
        chosen(ROWS, stores)
        if said.write and said.small:
            raise SystemExit("--write is for a whole soak: leave --small out")
        with laboratory(small=said.small) as lab:
            soaked = soak_in(lab, length, stores, show.soaking(length))
        return show.soak_report(soaked, write=said.write)
    entries = chosen(said.rows.split(","), stores)
    if said.list:
        show.say("\n".join(entry.name for entry in entries))
        return 0
    if said.write and (said.small or stores != list(STORES)):
        raise SystemExit("--write is for whole rows: leave --small and --stores out")
    if said.failovers:
        entries = [one for one in entries if one.row in rows.FAIL_OVERS]
    started = time.monotonic()
    with laboratory(small=said.small) as lab:
        if said.failovers:
            lab.failovers, lab.operations, lab.told = said.failovers, OPERATIONS, show.tell
        done = [run(lab, entry) for entry in show.going_through(entries)]
    seconds = time.monotonic() - started
    write = page.write_failovers if said.failovers else page.write_matrix
    return show.report(done, seconds, write if said.write else None)
