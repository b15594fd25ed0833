"""Where peers are installed: each in a folder of its own, beside the environment and not in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "build" / "bench"
_PATIENCE: Final = 300


def install(wanted: Mapping[str, Iterable[str]], *options: str) -> None:
    """What can be had is there; the rest is missing, and the report says so."""
    for name, packages in wanted.items():
        folder = FOLDER / name
        if installed(name):
            continue
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        pip += ["--retries", "1", "--timeout", "15"]  # who has no network need not wait long
        try:
            done = subprocess.run(
                [*pip, *options, "--upgrade", "--target", str(folder), *packages],
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            (folder / ".whole").touch()


def installed(name: str) -> bool:
    """Whether all of it is there."""
    return (FOLDER / name / ".whole").exists()
