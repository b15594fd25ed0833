"""Is a history of one key linearizable? A search after Wing and Gong, with Lowe's memory.

The object is a cell that is empty until one operation runs and fills it; from then on every
operation is answered with what is in it. A history is right if each operation can be given one
moment between its beginning and its end so that, taken in that order, all were told the truth.

An operation that nobody heard the end of may have its moment at any time after its beginning, or
never. One that surely failed has none.
"""

from collections.abc import Iterable, Iterator

from tests.faults.matrix.history import Operation

EMPTY = None
ANY = object()
"""Filled by an operation that died with its value: the first answer tells what it was."""


def linearizable(operations: Iterable[Operation]) -> bool:
    """Whether there is an order in which every answer was right."""
    everything = list(operations)
    known = [one for one in everything if one.kind == "ok"]
    if not known:
        return True  # nobody was told anything
    # Of the operations without an end at most one matters: the one that filled the cell. Any
    # other would have been answered with what was there, and changes nothing by it.
    fillers: list[Operation | None] = [None, *(one for one in everything if one.kind == "info")]
    return any(_search(known, filler) for filler in fillers)


def _search(known: list[Operation], filler: Operation | None) -> bool:
    """Whether the answered operations fit, with this one of the open ones among them."""
    order = known if filler is None else [*known, filler]
    everything = (1 << len(order)) - 1
    seen: set[tuple[int, object]] = set()
    stack: list[tuple[int, object]] = [(0, EMPTY)]
    while stack:
        done, state = stack.pop()
        if done == everything:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        stack += _steps(order, filler, done, state)
    return False


def _steps(
    order: list[Operation], filler: Operation | None, done: int, state: object
) -> list[tuple[int, object]]:
    """Where the search may go from here."""
    found = []
    for place in _possible(order, done):
        one = order[place]
        fits, after = _apply(one, state, dead=one is filler)
        step = (done | 1 << place, after)
        if fits and after is state:
            return [step]  # it changes nothing: what is possible without it stays possible
        if fits:
            found.append(step)
    return found


def _possible(order: list[Operation], done: int) -> Iterator[int]:
    """The operations that may come next: those that began before any other one ended."""
    left = [place for place in range(len(order)) if not done >> place & 1]
    ends = [end for place in left if (end := order[place].end) is not None]
    first_end = min(ends, default=None)
    for place in left:
        if first_end is None or order[place].start <= first_end:
            yield place


def _apply(one: Operation, state: object, *, dead: bool) -> tuple[bool, object]:
    """Whether the operation can take place in this state, and the state afterwards."""
    if dead:
        return state is EMPTY, one.value or ANY
    if one.ran:
        return state is EMPTY, one.value
    if state is ANY:
        return True, one.value
    return state is not EMPTY and state == one.value, state
