"""Carry planted defects over a move: `python -m tools.house.carry TABLE BEFORE [AFTER]`.

Each patch is applied to the old tree, the old tree is moved, and what differs from the moved tree
without the patch is the new patch. It is written when it applies to the tree as it is now.
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.house.move import Mover, tidy
from tools.house.table import Table, module_of

FOLDER = Path("tests", "defects")


def apply(patch: str, root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Apply a patch to the tree at `root`."""
    words = ["patch", "-p1", "-s", "--no-backup-if-mismatch", *options]
    return subprocess.run(words, cwd=root, input=patch, text=True, check=False, capture_output=True)


def moved(before: Path, table: Path, patch: str, into: Path, changed: set[str]) -> dict[str, str]:
    """Return what becomes of the changed files of the old tree, with the patch."""
    shutil.copytree(before / "src", into / "src")
    shutil.copy(before / "pyproject.toml", into)
    if patch:
        done = apply(patch, into)
        if done.returncode:
            raise ValueError(done.stdout)
    source = into / "src"
    rules = Table.read(table)
    modules = {module_of(into / name, source) for name in changed}
    Mover(into, rules).run(("src",), modules)
    names = [
        source.joinpath(*rules.module(one).split("."))
        .with_suffix(".py")
        .relative_to(into)
        .as_posix()
        for one in modules
    ]
    tidy(into, names)
    return {name: (into / name).read_text("utf-8") for name in sorted(names)}


def difference(old: dict[str, str], new: dict[str, str]) -> str:
    """Return a unified diff of two trees."""
    pieces = []
    for name in sorted(old | new):
        lines = difflib.unified_diff(
            old.get(name, "").splitlines(keepends=True),
            new.get(name, "").splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
        pieces += list(lines)
    return "".join(pieces)


def main(words: list[str]) -> int:
    """Carry every patch over, and name those that do not apply."""
    table, before = Path(words[0]).resolve(), Path(words[1])
    after = Path(words[2]) if len(words) > 2 else Path()
    lost = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((before / FOLDER).glob("*.patch")):
            head, _, patch = path.read_text("utf-8").partition("\n\n")
            into, clean = Path(folder, path.stem), Path(folder, "clean")
            changed = set(re.findall(r"(?m)^\+\+\+ b/(src/\S+\.py)", patch))
            if not changed:  # a script or a statement, whose file is moved by hand
                sys.stdout.write(f"{path.name}: has no Python\n")
                continue
            try:
                diff = difference(
                    moved(before, table, "", clean, changed),
                    moved(before, table, patch, into, changed),
                )
            except (ValueError, SyntaxError) as error:
                sys.stdout.write(f"{path.name}: {error}\n")
                lost += 1
                continue
            finally:
                shutil.rmtree(into, ignore_errors=True)
                shutil.rmtree(clean, ignore_errors=True)
            done = apply(diff, after, "--dry-run")
            if done.returncode:
                sys.stdout.write(f"{path.name}: {done.stdout}\n")
                lost += 1
            (after / FOLDER / path.name).write_text(f"{head}\n\n{diff}", "utf-8")
    sys.stdout.write(f"{lost} patches are to be carried by hand\n")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
