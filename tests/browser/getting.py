"""A Chromium for the tests: `python -m tests.browser.getting` makes sure that there is one.

One on the PATH will do. Else root gets the package of the system, and whoever cannot the one that
Playwright brings. Only a browser that starts counts: on some systems the package is a promise.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGE = ("apt-get", "install", "-y", "--no-install-recommends", "chromium")
OWN = (sys.executable, "-m", "playwright", "install", "chromium")
PATIENCE = 600


def find() -> str | None:
    """The path of a Chromium that starts."""
    found = (path for name in NAMES if (path := shutil.which(name)) is not None)
    return next((path for path in chain(found, _playwrights_own()) if _starts(path)), None)


def get() -> str | None:
    """The same; it is installed if need be. None when nothing worked, and why was printed."""
    for command in _ways():
        path = find()
        if path is not None:
            return path
        _run(command)
    return find()


def _ways() -> Iterator[Sequence[str]]:
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        yield PACKAGE
        yield ("apt-get", "update")  # the lists may be missing or old, as in a fresh container
        yield PACKAGE
    yield OWN


def _playwrights_own() -> Iterator[str]:
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    if Path(path).is_file():
        yield path


def _starts(path: str) -> bool:
    return _run((path, "--version"), quiet=True)


def _run(command: Sequence[str], *, quiet: bool = False) -> bool:
    """Whether it ended well. What it says is shown when it did not."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, said = True, str(error)
    else:
        failed, said = done.returncode != 0, done.stdout + done.stderr
    if failed and not quiet:
        sys.stderr.write(f"{' '.join(command)} failed: {said.strip()[-1000:]}\n")
    return not failed


def main() -> int:
    """There is a browser: 0. There is none: 1, and what to do."""
    path = get()
    if path is None:
        names = ", ".join(NAMES)
        sys.stderr.write(
            f"No Chromium: none of {names} on the PATH starts, and none could be installed. "
            f"Install one and run this again.\n"
        )
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
