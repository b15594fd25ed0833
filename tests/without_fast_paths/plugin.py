"""What `pytest --without-fast-paths` does: leave out and count the tests that are about one.

The suites are the same. A test that is about a fast path says so with its reason:
`@pytest.mark.fast_path("what a wire does with a reply that nobody wants")`.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.without_fast_paths import sitecustomize as switch

HERE = Path(__file__).parent
SENT = "oncekey_left_out"


class WithoutFastPaths:
    """One run of tests without fast paths."""

    def __init__(self, config: pytest.Config) -> None:
        """The switch is on, here and for every process that is started from now on."""
        self._left_out: dict[str, str] = {}
        self._config = config
        self._works = hasattr(config, "workerinput")
        if switch.LEDGER not in os.environ:
            folder = tempfile.TemporaryDirectory(prefix="without-fast-paths-")
            config.add_cleanup(folder.cleanup)
            ledger = Path(folder.name) / "ledger"
            ledger.touch()
            os.environ[switch.LEDGER] = str(ledger)  # until this process ends
            before = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), before)))
        switch.install()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        about = [item for item in items if item.get_closest_marker("fast_path") is not None]
        for item in about:
            self._left_out[item.nodeid] = reason_of(item)
        items[:] = [item for item in items if item not in set(about)]
        self._config.hook.pytest_deselected(items=about)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker collects all tests, so that all of them leave out the same."""
        self._left_out |= getattr(node, "workeroutput", {}).get(SENT, {})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._works:
            self._config.workeroutput[SENT] = self._left_out  # type: ignore[attr-defined]  # as xdist wants it
        elif self._lines("fast"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        say = terminalreporter.write_line
        terminalreporter.section("without fast paths")
        stores = self._lines("store")
        kinds = Counter(kind for kind, _, _ in stores)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        say(f"{len(stores)} stores in {len({pid for _, pid, _ in stores})} processes: {told}")
        say(f"{len(self._left_out)} tests left out, which are about a fast path:")
        for reason, count in sorted(Counter(self._left_out.values()).items()):
            say(f"  {count:4} {reason}")
        for kind, pid, test in self._lines("fast"):
            say(f"FAST PATH TAKEN: {kind} was made by process {pid} in {test}", red=True)

    def _lines(self, wanted: str) -> list[tuple[str, str, str]]:
        """What was made, by which process, in which test."""
        lines = Path(os.environ[switch.LEDGER]).read_text("utf-8").splitlines()
        found = [line.split("\t", 3) for line in lines]
        return [(kind, pid, test) for what, kind, pid, test in found if what == wanted]


def reason_of(item: pytest.Item) -> str:
    """Why the test means nothing without a fast path. There is no mark without a reason."""
    mark = item.get_closest_marker("fast_path")
    if mark is None or len(mark.args) != 1 or not isinstance(mark.args[0], str):
        msg = f"{item.nodeid}: write why, as in fast_path('what a wire does with lost replies')"
        raise pytest.UsageError(msg)
    return mark.args[0]
