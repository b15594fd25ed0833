"""What a run came to: the workers' histories and the ledger, compared and counted."""

from collections import Counter
from pathlib import Path

from msgspec import Struct

from tests.faults.matrix.history import Operation, lines, operations
from tests.faults.matrix.ledger import arrivals, asked, by_key, fenced
from tests.faults.matrix.linear import linearizable
from tests.faults.matrix.spec import Mode


class Figures(Struct, kw_only=True):
    """The figures of one run."""

    keys: int = 0
    operations: int = 0
    kills: int = 0
    asked_again: int = 0
    """Effects that were asked for more than once; a provider with keys does them once."""
    doubled: int = 0
    """Effects that happened more than once, as the mode counts it."""
    lost: int = 0
    """Keys that were answered although their effect never happened, or never answered at all."""
    mismatched: int = 0
    """Keys that were answered with two different values."""
    stuck: int = 0
    """Keys that somebody gave up."""
    held: int = 0
    """Keys whose outcome nobody could tell, and which were refused for it."""
    tangled: int = 0
    """Keys whose history has no order in which every answer was right."""
    refused: dict[str, int] = {}
    told: dict[str, int] = {}
    """What the workers' observers heard."""
    fenced: int = 0
    """Late effects that a provider who looks at tokens would have refused."""
    slowest: float = 0.0
    """Seconds from the first asking to an answer, for the slowest of 99 in 100 keys."""

    @property
    def clean(self) -> bool:
        """Whether nothing that is promised was broken."""
        return not (self.doubled or self.lost or self.mismatched or self.stuck or self.tangled)


def judge(folder: Path, mode: Mode, *, kills: int = 0) -> Figures:
    """The figures of the run in this folder."""
    histories = operations(lines(folder))
    found = list(arrivals(folder))
    arrived = asked(found)
    happened = by_key(found) if mode == "keyed" else arrived
    figures = Figures(
        keys=len(histories),
        operations=sum(map(len, histories.values())),
        kills=kills,
        asked_again=sum(count > 1 for count in arrived.values()),
        doubled=sum(count > 1 for count in happened.values()),
        fenced=fenced(found)[1],
        refused=dict(
            Counter(one.why for all_of in histories.values() for one in all_of if one.why)
        ),
        told=_told(folder),
    )
    waits = []
    for key, all_of in histories.items():
        values = {one.value for one in all_of if one.kind == "ok"}
        figures.mismatched += len(values) > 1
        whys = {one.why for one in all_of}
        figures.stuck += "stuck" in whys and not values
        figures.held += "OutcomeUnknownError" in whys
        never = not values and "OutcomeUnknownError" not in whys
        figures.lost += never or (bool(values) and not arrived.get(key))
        waits.append(_wait(all_of))
        figures.tangled += not linearizable(all_of)
    waits.sort()
    figures.slowest = round(waits[int(len(waits) * 0.99)], 3) if waits else 0.0
    return figures


def _wait(all_of: list[Operation]) -> float:
    ends = [one.end for one in all_of if one.kind == "ok" and one.end]
    return (min(ends) - all_of[0].start) / 1e9 if ends else 0.0


def _told(folder: Path) -> dict[str, int]:
    path = folder / "events"
    if not path.exists():
        return {}
    return dict(Counter(line.split()[0] for line in path.read_text().splitlines()))
