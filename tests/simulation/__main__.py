"""Lives through schedules: python -m tests.simulation --seeds 10000 --workers 2

Nothing is passed by not running: what cannot be understood ends with one sentence and code 2.
"""

import argparse
import sys
import time
from typing import NoReturn

from tests.defects.__main__ import Defect
from tests.simulation import batch, planted, progress, shrink
from tests.simulation.sometimes import LARGE, PATHS

BROKEN, BAD_INPUT = 1, 2


def say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Parser(argparse.ArgumentParser):
    """Says what was wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{message}\n")
        raise SystemExit(BAD_INPUT)


def whole(least: int):
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            msg = f"must be a whole number of at least {least}, but it is {text!r}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return number


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=whole(1), default=LARGE, help="how many schedules")
    parser.add_argument("--first", type=whole(0), default=0, help="the first seed")
    parser.add_argument("--seed", type=whole(0), help="one schedule, told as a story")
    parser.add_argument("--workers", type=whole(1), default=2, help="processes")
    parser.add_argument("--twice", action="store_true", help="each seed twice, traces compared")
    parser.add_argument("--until-found", action="store_true", help="end at the first violation")
    parser.add_argument("--defect", help="plant this defect of the core and look for it")
    parser.add_argument("--defects", action="store_true", help="plant every defect of the core")
    wanted = parser.parse_args(arguments)
    if wanted.defect is not None:
        known = planted.defects()
        if wanted.defect not in known:
            names = ", ".join(known)
            parser.error(f"no planted defect of the core is called {wanted.defect!r}; {names} are")
        return look_for([known[wanted.defect]], 1)
    if wanted.defects:
        return look_for(list(planted.defects().values()), wanted.workers)
    if wanted.seed is not None:
        return tell(wanted.seed)
    return live(wanted)


def tell(seed: int) -> int:
    """One schedule as a story, and what of it is enough to break the promise."""
    batch.prepare()
    lived = batch.live(seed, tell=True)
    for line in lived.told:
        say(line)
    say(f"seed {seed}: {lived.steps} requests, {len(lived.injected)} faults")
    say(f"trace {lived.trace:08x}")
    if not lived.violation:
        say("no violation")
        return 0
    explain(seed, lived.violation)
    return BROKEN


def explain(seed: int, violation: str) -> None:
    say(f"violation in seed {seed}: {violation}")
    say(f"  repeat it: python -m tests.simulation --seed {seed}")
    faults = batch.live(seed).injected
    fewest = shrink.smallest(seed, faults)
    say(f"  of {len(faults)} faults these {len(fewest)} are enough:")
    for fault in fewest:
        say(f"    {shrink.words(seed, fault)}")


def live(wanted: argparse.Namespace) -> int:
    """Many schedules, with a bar on a terminal."""
    total = batch.Sum()
    started, worked = time.perf_counter(), time.process_time()
    with progress.bar("schedules", wanted.seeds) as advance:
        for piece in batch.live_many(
            wanted.first, wanted.seeds, wanted.workers, twice=wanted.twice
        ):
            total.add(piece)
            for seed, violation in piece.violations:  # now: a run may be stopped before its end
                say(f"seed {seed} breaks a promise: {violation[:200]}")
            advance(piece.schedules)
            if total.violations and wanted.until_found:
                break
    took = time.perf_counter() - started
    worked = time.process_time() - worked
    speed = f"{total.schedules / took:,.0f} a second"
    if wanted.workers == 1:
        speed += f", {total.schedules / worked:,.0f} a second of processor time"
    say(
        f"{total.schedules:,} schedules, {total.steps:,} requests to the store, "
        f"{len(total.violations)} violations, {took:.1f} s ({speed}), trace {total.trace:08x}"
    )
    if wanted.until_found and total.violations:
        say("violation in seed {}: {}".format(*total.violations[0]))
        return BROKEN
    return report(total)


def report(total: batch.Sum) -> int:
    if total.violations:
        batch.prepare()
        for seed, violation in total.violations[:3]:
            explain(seed, violation)
        more = [str(seed) for seed, _ in total.violations[3:20]]
        if more:
            say(f"and in seeds {', '.join(more)}")
    missing = [path for path in PATHS if not total.seen[path]]
    reached = len(PATHS) - len(missing)
    say(f"{reached} of {len(PATHS)} paths reached")
    for path in sorted(PATHS, key=lambda path: total.seen[path])[:5]:
        say(f"  seldom: {path} ({total.seen[path]} schedules)")
    if missing and total.schedules >= LARGE:
        say(f"never reached: {', '.join(missing)}")
        return BROKEN
    return BROKEN if total.violations else 0


def look_for(wanted: list[Defect], workers: int) -> int:
    """Each planted defect is found within the schedules it has, or this fails."""
    clean = planted.plant(planted.NONE, planted.ENOUGH)
    if clean.seed is not None:
        say(f"a promise is broken without any defect, in seed {clean.seed}: {clean.words}")
        return BROKEN
    missed = 0
    for defect, seed, words in planted.look_for(wanted, workers):
        reason = planted.BLIND.get(defect.name)
        if seed is not None and reason is not None:
            missed += 1
            say(f"  SEEN AT SEED {seed:6} {defect.name} is not blind: {reason} ({words})")
        elif seed is not None:
            say(f"  found at seed {seed:4}  {defect.name}: {words}")
        elif reason is not None:
            say(f"  cannot be seen      {defect.name}: {reason}")
        else:
            missed += 1
            say(f"  NOT FOUND           {defect.name}: {defect.breaks} ({words})")
    if len(wanted) > 1:
        for name, why in planted.beside().items():
            say(f"  not simulated       {name}: {why}")
    say(
        f"{len(wanted) - missed} of {len(wanted)} defects of the core: each found within "
        f"{planted.MOST:,} schedules, or blind for a reason"
    )
    return BROKEN if missed else 0


if __name__ == "__main__":
    sys.exit(main())
