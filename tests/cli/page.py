"""The console examples of the pages about commands: run and, with `python -m`, written anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.cli.outage import open_outage
from tests.cli.shop import open_shop

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "cli.md"
PAGES: Final[dict[Path, Callable[[Path], None]]] = {
    PAGE: open_shop,
    DOCS / "outage.md": open_outage,
}
"""The pages, and what makes the store of their examples."""
BLOCK: Final = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
# What is different in every run, and what stands for it.
CHANGING: Final = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", "2026-03-01 12:00:00.000 UTC"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "2026-03-01 12:00:00 UTC"),
    (r"after [\d.]+ m?s", "after 7 ms"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", "2026-03-01T12:00:00.000000+00:00"),
    (r"\b\d{16}\b", "1772366400000000"),
    (r"1:[0-9a-f]{64}", "1:" + "0123456789abcdef" * 4),
)


def environment() -> dict[str, str]:
    """Ours, without what would change the output, and with the program of this interpreter."""
    ours = ("ONCEKEY_", "REDIS_URL", "NO_COLOR", "FORCE_COLOR", "TTY_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": programs, "COLUMNS": "80", "TERM": "xterm-256color"}


def steady(text: str) -> str:
    """The text without what is different in every run."""
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return text


def played(block: str, folder: Path, codes: list[int]) -> str:
    """The block as it would look now: its commands, each with what it prints."""
    return "".join(_played(block, folder, codes))


def _played(block: str, folder: Path, codes: list[int]) -> Iterator[str]:
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        yield f"{line}\n"
        if line.startswith("$ pip "):
            continue
        ran = subprocess.run(
            ["sh", "-c", f"(exit {codes[-1]}); {line[2:]}"],  # noqa: S607 - any shell will do
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        codes.append(ran.returncode)
        yield ran.stdout


def whole(page: Path) -> str:
    """The page with every example as it would look now, in one session on one store."""
    with tempfile.TemporaryDirectory() as folder:
        PAGES[page](Path(folder) / "oncekey.db")
        codes = [0]
        text = page.read_text("utf-8")
        text = BLOCK.sub(lambda block: played(block[0], Path(folder), codes), text)
        return re.sub(r"(?<= by )\S+@[^\s:]+", "ann@shop-1", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(whole(page), "utf-8")
