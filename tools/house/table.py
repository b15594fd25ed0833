"""The table of moves: which modules stand where, and which names change on the way.

A table is a TOML file. `[modules]` has the new module and the old ones that become it, in the
order in which their definitions follow each other; a module that is not named stays. `[names]` has
a name of an old module and what it is called from now on. `[folds]` has a base class and its only
subclass, which takes its methods in. `[says]` has the docstring of a new module, which is the
docstring of its first old one unless it is given.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "oncekey"


@dataclass(frozen=True)
class Table:
    """What moves, with full dotted names of modules."""

    modules: dict[str, str]
    names: dict[tuple[str, str], str]
    folds: dict[tuple[str, str], str]
    says: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read the TOML file."""
        data = tomllib.loads(path.read_text("utf-8"))
        modules: dict[str, str] = {}
        for new, olds in data.get("modules", {}).items():
            for old in [olds] if isinstance(olds, str) else olds:
                if full(old) in modules:
                    msg = f"{old} moves twice"
                    raise ValueError(msg)
                modules[full(old)] = full(new)
        names = {}
        for key, value in data.get("names", {}).items():
            module, _, name = key.rpartition(".")
            names[full(module), name] = value
        folds = {}
        for key, value in data.get("folds", {}).items():
            module, _, name = key.rpartition(".")
            folds[full(module), name] = value
        says = {full(new): text for new, text in data.get("says", {}).items()}
        return cls(modules, names, folds, says)

    def module(self, old: str) -> str:
        """Return where the definitions of an old module are."""
        return self.modules.get(old, old)

    def name(self, module: str, old: str) -> str:
        """Return what a name of an old module is called."""
        return self.folds.get((module, old)) or self.names.get((module, old), old)

    def merged(self) -> dict[str, list[str]]:
        """Return for each new module the old ones that become it."""
        found: dict[str, list[str]] = {}
        for old, new in self.modules.items():
            found.setdefault(new, []).append(old)
        return found


def full(short: str) -> str:
    """Return the dotted name of a module that a table names from the package on."""
    return f"{PACKAGE}.{short.replace('/', '.')}"


def module_of(path: Path, source: Path) -> str:
    """Return the dotted name of the module in a file below the folder of sources."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_below(source: Path) -> dict[str, Path]:
    """Return the file of every module."""
    return {module_of(path, source): path for path in sorted((source / PACKAGE).rglob("*.py"))}
