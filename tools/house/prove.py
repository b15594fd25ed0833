"""Compare a tree before and after a move: `python -m tools.house.prove TABLE BEFORE [AFTER]`.

Every function, every class without its methods, and every other statement of a module is one
definition. Names are resolved through the imports of their file, so that `machine.claim`, and
`claim` inside of the machine itself, are the same. A definition of the old tree, with the table
applied, must be in the new tree with the same syntax tree. What is not is printed.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.house.scopes import local_names
from tools.house.table import PACKAGE, Table, modules_below

Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, order=True)
class Definition:
    """One definition: where it is, and what it says."""

    module: str
    name: str
    says: str


class Names(ast.NodeTransformer):
    """Writes every name of the package in full, wherever it was imported from."""

    def __init__(
        self, module: str, tree: ast.Module, table: Table | None, modules: set[str]
    ) -> None:
        """Read the imports of a module. A table maps what they name."""
        self._table = table or Table({}, {}, {}, {})
        self._modules = modules
        self._local = local_names(tree)
        self._full: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, (*Functions, ast.ClassDef)):
                self._full[node.name] = self._symbol(module, node.name)
            for target in _assigned(node):
                self._full[target] = self._symbol(module, target)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
                for alias in node.names:
                    if f"{node.module}.{alias.name}" in modules:
                        self._aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    self._full[alias.asname or alias.name] = self._symbol(
                        node.module or "", alias.name
                    )

    def _symbol(self, module: str, name: str) -> str:
        inside = f"{module}.{name}"
        if inside in self._modules:
            return self._table.module(inside)
        return f"{self._table.module(module)}.{self._table.name(module, name)}"

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Write the name in full, unless it is one of a function or of a class."""
        if node in self._local:
            return node
        return ast.Name(self._full.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Write `module.name` as one name in full."""
        value = node.value
        if isinstance(value, ast.Name) and value.id in self._aliases and value not in self._local:
            old = self._aliases[value.id]
            name = f"{self._table.module(old)}.{self._table.name(old, node.attr)}"
            return ast.Name(name, node.ctx)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        """Leave imports inside of functions out: what they name is written in full."""
        return None if (node.module or "").split(".")[0] == PACKAGE else node


def _assigned(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [
            one.id
            for target in node.targets
            for one in ast.walk(target)
            if isinstance(one, ast.Name)
        ]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def definitions(root: Path, table: Table | None) -> Counter[Definition]:
    """Return the definitions of a tree."""
    files = modules_below(root / "src")
    found: Counter[Definition] = Counter()
    for module, path in files.items():
        tree = ast.parse(path.read_text("utf-8"))
        names = Names(module, tree, table, set(files))
        home = table.module(module) if table else module
        if ast.get_docstring(tree) is not None:
            del tree.body[0]
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            _add(
                found,
                home,
                "",
                node,
                names,
                (lambda old, m=module: table.name(m, old) if table else old),
            )
    return found


def _add(found, module, prefix, node, names, renamed) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - a small recursion
    if isinstance(node, ast.ClassDef):
        name = prefix + (node.name if prefix else renamed(node.name))
        for part in node.body:
            _add(found, module, f"{name}.", part, names, renamed)
        node.body, node.name = [], name
        found[Definition(module, name, ast.dump(names.visit(node)))] += 1
        return
    name = f"{prefix}(statement)"
    if isinstance(node, Functions):
        name = prefix + (node.name if prefix else renamed(node.name))
        node.name = name
    found[Definition(module, name, ast.dump(names.visit(node)))] = 1


def main(words: list[str]) -> int:
    """Print what differs. Return 1 when something does."""
    table = Table.read(Path(words[0]))
    before = definitions(Path(words[1]), table)
    after = definitions(Path(words[2]) if len(words) > 2 else Path(), None)
    same = before & after
    gone, new = before - after, after - before
    sys.stdout.write(
        f"{before.total()} definitions before, {after.total()} after, {same.total()} the same\n"
    )
    changed = {(one.module, one.name) for one in gone} & {(one.module, one.name) for one in new}
    for word, some in (("only before", gone), ("only after", new)):
        for one in sorted(some):
            mark = "changed" if (one.module, one.name) in changed else word
            if mark != "changed" or word == "only after":
                detail = "" if not one.name.endswith("(statement)") else f": {one.says[:160]}"
                sys.stdout.write(f"{mark:12} {one.module} {one.name}{detail}\n")
    return int(bool(gone or new))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
