"""Plugin of pytest: write down the outcome of every test."""

import json
import os
from pathlib import Path

import pytest


class Outcomes:
    """The outcome of each test, from the reports of its three phases."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found[report.nodeid] = "error"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = outcome_of(report)
        if outcome is not None:
            self.found[report.nodeid] = outcome

    def pytest_sessionfinish(self) -> None:
        path = Path(os.environ["ONCEKEY_OUTSIDE_OUTCOMES"])
        path.write_text(json.dumps(self.found), "utf-8")


def outcome_of(report: pytest.TestReport) -> str | None:
    """Name what the phase says about its test; None if it says nothing new."""
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.when == "call":
        return report.outcome
    if report.failed:
        return "error"
    return "skipped" if report.skipped else None


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a worker of xdist: its reports come to the process that started it
    config.pluginmanager.register(Outcomes(), "oncekey-outcomes")
