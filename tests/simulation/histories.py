"""What the simulated store was asked, and when: python -m tests.simulation.histories 20

The same requests are sent to real stores by a test, so that what is simulated stays what is real.
"""

import sys
from typing import Any

import msgspec

from oncekey.core.record import Record
from oncekey.core.requests import Request
from tests.simulation import batch
from tests.simulation.world import World

History = list[tuple[int, str, dict[str, Any]]]


def history(seed: int) -> History:
    """Every request of a schedule that reached the store, with the store's time."""
    world = World(seed)
    told: History = []
    oracle = world.store.seen

    def seen(before: Record | None, ask: Request, answer: Any, after: Any, now: int) -> None:
        told.append((now, type(ask).__name__, msgspec.structs.asdict(ask)))
        oracle(before, ask, answer, after, now)

    world.store.seen = seen
    world.run()
    world.close()
    return told


if __name__ == "__main__":
    batch.prepare()
    sys.stdout.buffer.write(msgspec.msgpack.encode([history(n) for n in range(int(sys.argv[1]))]))
