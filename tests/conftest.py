"""Rules of the whole suite: nothing is skipped, rows are real, async tests run on asyncio."""

import os
import re
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Coverage and parallel workers slow generation down; how slow says nothing about the code.
settings.register_profile(
    "modest",
    max_examples=12,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("heavy", settings.get_profile("modest"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "modest"))

ROW = re.compile(r"^\| *([A-Z]\d+) *\|", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--plain",
        action="store_true",
        help="stores without wires, crowds, group commits and cache; see tests/plain",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fast_path(reason): left out under --plain, and why")
    if config.getoption("--plain"):
        from tests.plain.plugin import Plain  # noqa: PLC0415 - it changes what it imports

        config.pluginmanager.register(Plain(config), "plain")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip and an xfail into a failure, and an xpass too."""
    report = yield
    if report.skipped or hasattr(report, "wasxfail"):
        reason = getattr(report, "wasxfail", None) or _reason(report.longrepr)
        fail(report, f"skipped or expected to fail, which this suite does not allow: {reason}")
        report.__dict__.pop("wasxfail", None)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a module that skips itself into an error, and a row that does not exist too."""
    report = yield
    if report.skipped:
        fail(
            report,
            f"skipped as a whole, which this suite does not allow: {_reason(report.longrepr)}",
        )
    elif report.passed and (unknown := unknown_rows(collector, report.result)):
        fail(report, f"rows that docs/requirements.md does not have: {', '.join(unknown)}")
    return report


def fail(report: pytest.TestReport | pytest.CollectReport, why: str) -> None:
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: {why}"


def unknown_rows(
    collector: pytest.Collector, nodes: Iterable[pytest.Item | pytest.Collector]
) -> list[str]:
    used = {
        str(row)
        for node in nodes
        if isinstance(node, pytest.Item)
        for mark in node.iter_markers("row")
        for row in mark.args or ["(a row marker without an id)"]
    }
    return sorted(used - known_rows(collector.config.rootpath)) if used else []


def known_rows(root: Path) -> set[str]:
    return set(ROW.findall((root / "docs" / "requirements.md").read_text("utf-8")))


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
