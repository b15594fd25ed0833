"""Rules of the whole suite: nothing is skipped, rows are real, async tests run on asyncio."""

import gc
import multiprocessing
import os
import random
import re
import signal
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.schedule import ByModule, is_slow

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

NO_SERVERS = "this run starts no servers"
ROW = re.compile(r"^\| *([A-Z]\d+) *\|", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-fast-paths",
        action="store_true",
        help="stores without wires, crowds, group commits and cache; see tests/without_fast_paths",
    )
    parser.addoption(
        "--no-servers",
        action="store_true",
        help="leave out every test that starts a server",
    )
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run the modules, and the tests in each, in the random order of this number",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Whatever starts a run in the background, such as nohup, hands down an ignored SIGINT. Tests
    # interrupt themselves and the processes that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--no-servers"):
        os.environ["ONCEKEY_TEST_SERVERS"] = "none"
    config.addinivalue_line(
        "markers", "fast_path(reason): left out under --without-fast-paths, and why"
    )
    if config.getoption("--without-fast-paths"):
        from tests.without_fast_paths.plugin import WithoutFastPaths

        config.pluginmanager.register(WithoutFastPaths(config), "without-fast-paths")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put slow tests first, or shuffle all when asked to; a module stays together either way."""
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: not is_slow(item.nodeid))
    else:
        chance = random.Random(seed)  # noqa: S311 - an order is no secret
        chance.shuffle(items)
        modules = {item.path: chance.random() for item in items}
        items.sort(key=lambda item: (modules[item.path], item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByModule:
    """Give each worker whole modules, in the order in which they were collected."""
    config.option.loadscopereorder = False
    return ByModule(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, and leave them out of it later: they stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _forks_leave_no_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let multiprocessing keep its sockets among the files of the tests.

    It would remove a folder of its own at exit, but workers of pytest-xdist end without that.
    """
    process: Any = multiprocessing.current_process()
    process._config["tempdir"] = str(tmp_path_factory.mktemp("forks"))


@pytest.fixture(scope="session", autouse=True)
def _nobody_counts_by_itself() -> Generator[None]:
    """Let no `Once` that a test has left behind write its counts among the data of another test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oncekey.engine.runtime.COUNT_EVERY", 86_400.0)
        yield


@pytest.fixture(scope="session")
def end_of_run() -> Generator[ExitStack]:
    """What ends with the last test of this worker, while pytest-xdist still waits for it.

    A clean-up of pytest's configuration would run after that, when a worker is given 5 seconds.
    """
    with ExitStack() as ending:
        yield ending


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip and an xfail into a failure, and an xpass too."""
    report = yield
    if report.skipped or hasattr(report, "wasxfail"):
        reason = getattr(report, "wasxfail", None) or _reason(report.longrepr)
        if NO_SERVERS in reason and item.config.getoption("--no-servers"):
            return report
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
