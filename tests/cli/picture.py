"""The picture of `oncekey watch` in docs/cli.md: taken from a real terminal, with `python -m`.

It needs tmux. The program runs in it on the store of the shop, while customers come.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from oncekey import Once
from tests.cli.page import environment
from tests.cli.shop import open_shop, url_of
from tests.patience import PATIENCE, until

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "cli-watch.svg"
WIDTH, HEIGHT = 96, 20


def captured(folder: Path) -> str:
    """What the terminal shows once a customer was seen, with its colours."""
    socket = f"{folder}/tmux"
    command = shlex.join(["oncekey", "watch", "--every", "1s"])
    tmux = ["tmux", "-f", "/dev/null", "-S", socket]
    size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
    _run([*tmux, "new-session", "-d", *size, "-c", str(folder), command])
    try:

        def seen() -> str:
            _customer(folder / "oncekey.db", time.time_ns())
            screen = _run([*tmux, "capture-pane", "-p", "-e"])
            return screen if "new since the last look" in screen else ""

        return str(until(seen))
    finally:
        _run([*tmux, "kill-server"])


def drawn(screen: str) -> str:
    """The screen as an SVG that fetches nothing."""
    console = Console(width=WIDTH, record=True, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")))
    svg = console.export_svg(title="oncekey watch", unique_id="watch")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def _customer(path: Path, number: int) -> None:
    once = Once(url_of(path), observers=(), scope="billing").options(label="charge")
    once.run(f"charge:{number // 10**8 % 100_000}", lambda: "paid")
    once.close()


def _run(command: list[str]) -> str:
    ours = {name: value for name, value in environment().items() if name != "COLUMNS"}
    done = subprocess.run(
        command, env=ours, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        open_shop(Path(name) / "oncekey.db")
        PICTURE.write_text(drawn(captured(Path(name))), "utf-8")
