"""The fewest faults that are enough to break a promise: delta debugging over the schedule."""

from tests.simulation.batch import live
from tests.simulation.plan import SECOND, Plan
from tests.simulation.world import Injected


def smallest(seed: int, faults: tuple[Injected, ...]) -> list[Injected]:
    """Faults of which none can be left out: without any one of them the seed is well."""
    left, parts = list(faults), 2
    while left:
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if live(seed, frozenset(fewer)).violation:
                left, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                return left
            parts = min(len(left), parts * 2)
    return left


def words(seed: int, fault: Injected) -> str:  # noqa: PLR0911 - one return per kind
    """A fault as people say it."""
    if len(fault) == 4:
        _, node, number, kind = fault
        return f"message {number} of process {node}: {kind}"
    kind, number = fault
    plan = Plan(seed)
    if kind == "caller":
        caller = plan.callers[number]
        return f"caller {number}: {caller.cut} {caller.cut_after / SECOND:.6f} s into a call"
    if kind == "tear":
        caller = plan.callers[number]
        where = f"{caller.tear_in}()" if caller.tear_in else "a call"
        return f"caller {number}: a signal in front of line {caller.tear} of {where}"
    if kind == "hang":
        return f"key {number}: run {plan.keys[number].hangs} hangs"
    if kind == "forgets":
        return "somebody forgets a record while its answer is on its way"
    if kind == "unwritable":
        return "key 0: the store refuses what is said of the end of its attempts"
    if kind == "upon":
        return f"upon the message: {plan.upon}"
    planned = plan.faults[number]
    return (
        f"at {planned.at / SECOND:.6f} s: {kind} (process {planned.where}, "
        f"{planned.long / SECOND:g} s)"
    )
