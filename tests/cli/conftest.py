"""A shop's store in the folder of the test, and the program in this process and in its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from oncekey.cli.program import program
from tests.cli.page import environment
from tests.cli.shop import open_shop

Run = Callable[..., Result]
Oncekey = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own, without settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("ONCEKEY_STORE", "REDIS_URL", "ONCEKEY_TTL", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def filled_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the shop, made once for all tests of a worker."""
    path = tmp_path_factory.mktemp("shop") / "oncekey.db"
    open_shop(path)
    return path


@pytest.fixture
def shop(folder: Path, filled_shop: Path) -> Path:
    """A copy of the shop's store, which the test may change."""
    return Path(shutil.copy(filled_shop, folder))


@pytest.fixture
def run() -> Run:
    """The program in this process."""

    def run(*arguments: str, **settings: str) -> Result:
        return CliRunner().invoke(
            program(terminal=False), list(arguments), env=settings, catch_exceptions=False
        )

    return run


@pytest.fixture
def oncekey(folder: Path) -> Oncekey:
    """The installed program in a process of its own."""

    def oncekey(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["oncekey", *arguments],  # noqa: S607 - the one beside this interpreter
            cwd=folder,
            env={**environment(), **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return oncekey
