"""The environment of frameworks, clients and tools around HTTP, whose pins are not ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.outside.environment import ROOT, pip

HERE = Path(__file__).parent
FOLDER = ROOT / "build" / "http"
CONSTRAINTS = HERE / "constraints.txt"
PACKAGES = HERE / "package.json"


def prepare() -> Path:
    """Return the interpreter of an environment that has exactly the packages of the constraints.

    To renew them, install `apispec django-rest-framework drf-spectacular falcon fastapi
    flask-smorest httpx litestar msgspec quart requests sanic schemathesis slack_sdk
    standardwebhooks starlette stripe svix twilio aiohttp uvicorn` in a fresh environment, and
    write down what `pip freeze` prints.
    """
    folder = FOLDER / "python"
    python, wanted = folder / "bin" / "python", f"{sys.version}\n{CONSTRAINTS.read_text('utf-8')}"
    if not _fits(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip(python, "install", "--no-deps", "-r", CONSTRAINTS)
        _stamp(folder, wanted)
    return python


def prepare_node() -> Path:
    """Return a folder with the packages of npm, which are at fixed versions too."""
    folder, wanted = FOLDER / "node", PACKAGES.read_text("utf-8")
    if not _fits(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(PACKAGES, folder)
        words = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
        silent = {**os.environ, "SCARF_ANALYTICS": "false"}  # one of them would call home
        subprocess.run(words, cwd=folder, env=silent, check=True, capture_output=True)
        _stamp(folder, wanted)
    return folder


def variables() -> dict[str, str]:
    """Return the variables under which a program of that environment finds our code."""
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    return {**os.environ, "PYTHONPATH": paths, "ONCEKEY_URL": "memory://"}


def run(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it printed."""
    command = list(map(str, words))
    return subprocess.run(
        command, cwd=cwd, env=variables(), check=False, capture_output=True, text=True
    )


def _fits(folder: Path, wanted: str) -> bool:
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text("utf-8") == wanted


def _stamp(folder: Path, wanted: str) -> None:
    (folder / "stamp").write_text(wanted, "utf-8")
