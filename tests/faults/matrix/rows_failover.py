"""Rows about fail-over: leaders that are killed, paused and cut off while workers go on."""

from collections.abc import Callable, Sequence

from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.failover import Group, Seen, Servers, fail_overs
from tests.faults.matrix.lab import Lab, Result
from tests.servers.patroni import PatroniCluster
from tests.servers.redis_groups import ClusterGroup, SentinelGroup


def _rows(
    row: str,
    titles: Sequence[str],
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

    store = "postgres" if opened is PatroniCluster else "redis"
    for number, (group, title) in enumerate(zip(groups, titles, strict=True)):
        cell(row, title, (store,), surface=group.surface, mode=group.mode)(of(number))


def _nothing_doubled(_: Group, seen: Seen) -> tuple[bool, str]:
    return seen.figures.clean, "0 doubled, 0 lost"


def _as_it_is(group: Group, seen: Seen) -> tuple[bool, str]:
    """Redis confirms what a fail-over loses, so that a second attempt and its answer are shown."""
    figures = seen.figures
    passed = not (figures.lost or figures.stuck or (figures.doubled and group.mode == "keyed"))
    return passed, (
        "0 doubled, 0 lost; the second answer may be another one"
        if group.mode == "keyed"
        else "what a fail-over loses runs again: shown"
    )


_rows(
    "F30",
    ["the leader of a Patroni cluster is killed, paused, cut off"] * 3,
    PatroniCluster,
    [Group("function", "keyed"), Group("coroutine", "keyed"), Group("atomic", "atomic")],
    _nothing_doubled,
)
_rows(
    "F31",
    [f"Sentinel, {which}" for which in ("without `wait=`", "with `wait=1,100ms`") * 2],
    SentinelGroup,
    [
        Group("function", "keyed"),
        Group("function", "keyed", "&wait=1,100ms"),
        Group("function", "bare"),
        Group("function", "bare", "&wait=1,100ms"),
    ],
    _as_it_is,
)
_rows(
    "F32",
    ["a primary of a Redis Cluster is killed, paused, cut off"] * 2,
    ClusterGroup,
    [Group("function", "keyed"), Group("function", "bare")],
    _as_it_is,
)
