"""Rows about fail-over: leaders that are killed, paused and cut off while workers go on."""

from collections.abc import Callable, Sequence

from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.failover import Group, Seen, Servers, fail_overs
from tests.faults.matrix.lab import Lab, Result
from tests.servers.patroni import PatroniCluster


def _rows(
    row: str,
    title: str,
    opened: Callable[[], Servers],
    groups: Sequence[Group],
    judged: Callable[[Group, Seen], tuple[bool, str]],
) -> None:
    """Add a cell for each group. All of them are run with the first one that is asked for."""

    def of(number: int) -> Cell:
        def run(lab: Lab, _: str) -> Result:
            seen = lab.once(row, lambda: fail_overs(lab, row, opened, groups))[number]
            passed, promise = judged(groups[number], seen)
            notes = {**seen.notes, "histories": seen.histories} if not passed else seen.notes
            return Result(figures=seen.figures, passed=passed, promise=promise, notes=notes)

        return run

    for number, group in enumerate(groups):
        words = f"{title}, `{group.query.removeprefix('?')}`" if group.query else title
        cell(row, words, ("postgres",), surface=group.surface, mode=group.mode)(of(number))


def _nothing_doubled(_: Group, seen: Seen) -> tuple[bool, str]:
    return seen.figures.clean, "0 doubled, 0 lost"


_rows(
    "F30",
    "the leader of a Patroni cluster is killed, paused, cut off",
    PatroniCluster,
    [Group("function", "keyed"), Group("coroutine", "keyed"), Group("atomic", "atomic")],
    _nothing_doubled,
)
