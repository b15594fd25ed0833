"""Rewrite the names of moved modules in strings and pages: `python -m tools.house.words TABLE`.

Only what is certain is rewritten: an import in a string, a dotted name with a name of its module
behind it, and the path of a file. The rest of what names a module that is gone is printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tools.house.table import Table

SUFFIXES = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".html", ""}


def main(words: list[str]) -> int:
    """Rewrite, and print what is left."""
    table = Table.read(Path(words[0]))
    git = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(git, check=True, capture_output=True, text=True)
    for name in listed.stdout.split("\n"):
        path = Path(name)
        ours = path.parts[:2] == ("tools", "house")
        if ours or not path.is_file() or path.suffix not in SUFFIXES:
            continue
        old = path.read_text("utf-8", errors="ignore")
        text = old
        for module, new in table.modules.items():
            if module in table.modules.values():  # the name lives on, and means something else
                sys.stdout.write(f"{name}: look for {module}\n" if module in text else "")
                continue
            dotted, file = re.escape(module), re.escape(module.replace(".", "/"))
            if not any(other.startswith(f"{module}.") for other in table.modules.values()):
                text = re.sub(rf"from {dotted} import", f"from {new} import", text)
            text = re.sub(rf"{file}\.py\b", new.replace(".", "/") + ".py", text)
            text = re.sub(
                rf"\b{dotted}\.(?=_?[A-Z])", f"{new}.", text
            )  # a class or a constant of the module
            for found in re.finditer(rf"\b{dotted}\b(?!\.\w|/)", text):
                line = text.count("\n", 0, found.start()) + 1
                sys.stdout.write(f"{name}:{line}: {found[0]}\n")
        if text != old:
            path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
