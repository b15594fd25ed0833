"""Which tests a worker of pytest-xdist is given together.

What the tests of a module share (a database, a server, a filled store) is made once in every worker
that runs one of them, so that a worker is given a module, or a good part of it. Tests that take
seconds are given out one by one, and first: the quick ones fill the gaps at the end. A mark
`xdist_group` keeps what it names together, as ever.
"""

from collections.abc import Iterable

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it has none

MOST = 40
"""So many tests of a module at most, or one worker would still be busy when the others are done."""
SLOW = (
    "tests/project/",
    "tests/faults/",
    "tests/processes/",
    "tests/simulation/",
    "tests/fuzz/",
    "tests/cli/test_page.py",
    "tests/docs/test_demo.py",
    "tests/docs/test_tour.py",
    "tests/events/test_cluster",
    "tests/events/test_kills.py",
    "tests/jobs/",
    "tests/messages/test_example.py",
    "tests/messages/test_faststream_kills.py",
    "tests/messages/test_kills.py",
    "tests/outbox/test_chain.py",
    "tests/outbox/test_kills.py",
    "tests/stores/conformance/test_greenlets.py",
)
"""How the paths of the tests begin that take seconds each."""


def is_slow(nodeid: str) -> bool:
    """Return whether the test is given out by itself, before the others."""
    return nodeid.startswith(SLOW)


def units_of(nodeids: Iterable[str]) -> dict[str, str]:
    """Return the name of the unit that each test belongs to."""
    units: dict[str, str] = {}
    counts: dict[str, int] = {}
    for nodeid in nodeids:
        if nodeid.rfind("@") > nodeid.rfind("]"):  # as pytest-xdist marks a group
            units[nodeid] = nodeid.rpartition("@")[2]
        elif is_slow(nodeid):
            units[nodeid] = nodeid
        else:
            module = nodeid.partition("::")[0]
            count = counts[module] = counts.get(module, -1) + 1
            units[nodeid] = f"{module} {count // MOST}"
    return units


class ByModule(LoadGroupScheduling):  # type: ignore[misc]  # as above
    """Give out whole modules where `--dist loadgroup` gives out single tests."""

    _units: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._units is None:
            self._units = units_of(self.collection)
        return self._units[nodeid]
