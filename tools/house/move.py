"""Move modules as a table says: `python -m tools.house.move TABLE [ROOT]`.

The text of what moves stays as it is, with its comments. Only imports change, everywhere, the names
of modules that are used with a dot, and the names in the table. ruff sorts the imports afterwards.
What has to be done by hand is printed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.house.scopes import local_names
from tools.house.table import PACKAGE, Table, modules_below

_FIELDS = {
    ast.Name: ("id",),
    ast.arg: ("arg",),
    ast.alias: ("name", "asname"),
    ast.FunctionDef: ("name",),
    ast.AsyncFunctionDef: ("name",),
    ast.ClassDef: ("name",),
}
PLACES = ("src", "tests", "bench", "examples", "docs")


@dataclass
class File:
    """One Python file on its way: its text, its tree and the edits to be made."""

    path: Path
    module: str
    text: str = ""
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = self.path.read_text("utf-8")
        self.tree = ast.parse(self.text)
        self.lines = [0]
        for line in self.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Return the place in the text of a place in the tree, whose columns count bytes."""
        start = self.lines[line - 1]
        row = self.text[start : self.lines[line]]
        return start + len(row.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
        """Return where the node begins and ends in the text."""
        assert node.end_lineno is not None  # noqa: S101 - it was parsed
        assert node.end_col_offset is not None  # noqa: S101 - it was parsed
        return (
            self.at(node.lineno, node.col_offset),
            self.at(node.end_lineno, node.end_col_offset),
        )

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Let the text of the node be another one."""
        self.edits.append((*self.span(node), text))

    def edited(self, begin: int = 0, end: int | None = None) -> str:
        """Return a part of the text with the edits made."""
        end = len(self.text) if end is None else end
        pieces, place = [], begin
        for first, last, text in sorted(self.edits):
            if begin <= first and last <= end:
                pieces += [self.text[place:first], text]
                place = last
        return "".join([*pieces, self.text[place:end]])


class Mover:
    """Moves the modules of one tree."""

    def __init__(self, root: Path, table: Table) -> None:
        """Read the tree at `root`."""
        self.root, self.table = root, table
        self.modules = modules_below(root / "src")
        self.by_hand: list[str] = []

    def run(self, places: Iterable[str] = PLACES, only: set[str] | None = None) -> None:
        """Move, and rewrite the files of these folders, or only what becomes of some modules."""
        missing = [old for old in self.table.modules if old not in self.modules]
        if missing:
            msg = f"there is no module {', '.join(missing)}"
            raise ValueError(msg)
        targets = None if only is None else {self.table.module(module) for module in only}
        files = {
            module: File(path, module)
            for module, path in self.modules.items()
            if targets is None or self.table.module(module) in targets
        }
        others = [
            File(path, "")
            for place in places
            if place != "src"
            for path in sorted((self.root / place).rglob("*.py"))
            if not {"__pycache__", "_build"} & set(path.parts)
        ]
        for file in [*files.values(), *others]:
            self._rewrite(file)
        self._write(files)
        for file in others:
            if file.edits:
                file.path.write_text(file.edited(), "utf-8")

    def _rewrite(self, file: File) -> None:
        """Collect the edits of one file: imports, and the uses of what they import."""
        home = self.table.module(file.module)
        uses: dict[str, str] = {}
        if file.module:
            uses |= {
                old: new for (where, old), new in self.table.names.items() if where == file.module
            }
            self._rename_definitions(file, uses)
            uses |= {
                old: new for (where, old), new in self.table.folds.items() if where == file.module
            }
        strip: set[str] = set()
        aliases: dict[str, str] = {}
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ImportFrom) and self._is_ours(node.module):
                self._rewrite_import(file, node, home, uses, strip, aliases)
            elif isinstance(node, ast.Import):
                self._rewrite_dotted(file, node)
        self._rewrite_uses(file, uses, strip, aliases)

    def _is_ours(self, module: str | None) -> bool:
        return module is not None and module.split(".")[0] == PACKAGE

    def _rename_definitions(self, file: File, names: dict[str, str]) -> None:
        for node in file.tree.body:
            is_definition = isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            if is_definition and node.name in names:
                begin = file.span(node)[0]
                found = re.compile(rf"(?:class|def)\s+({node.name})\b").search(file.text, begin)
                assert found is not None  # noqa: S101 - the tree has it
                file.edits.append((*found.span(1), names[node.name]))

    def _rewrite_import(
        self, file: File, node: ast.ImportFrom, home: str,
        uses: dict[str, str], strip: set[str], aliases: dict[str, str],
    ) -> None:  # fmt: skip
        old = node.module or ""
        wanted: list[tuple[str, str, str | None]] = []
        for alias in node.names:
            inside = f"{old}.{alias.name}"
            local = alias.asname or alias.name
            if inside in self.modules:
                aliases[local] = inside
                new = self.table.module(inside)
                package, _, base = new.rpartition(".")
                if new == home:
                    strip.add(local)
                elif alias.asname or base == alias.name:
                    wanted.append((package, base, alias.asname))
                elif self._is_taken(file, base, new):
                    wanted.append((package, base, local))
                else:
                    wanted.append((package, base, None))
                    uses[local] = base
            else:
                new, name = self.table.module(old), self.table.name(old, alias.name)
                if new != home:
                    wanted.append((new, name, alias.asname))
                if alias.asname and new == home:
                    uses[alias.asname] = name
                elif not alias.asname and name != alias.name:
                    uses[alias.name] = name
        kept = [(old, one.name, one.asname) for one in node.names]
        if wanted != kept:
            self._write_import(file, node, wanted)

    def _is_taken(self, file: File, name: str, module: str) -> bool:
        """Return whether a name already means something in a file, other than this module."""
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.table.module(f"{node.module}.{alias.name}") != module
        return any(
            getattr(node, field, None) == name
            for node in ast.walk(file.tree)
            for field in _FIELDS.get(type(node), ())
        )

    def _write_import(
        self, file: File, node: ast.ImportFrom, wanted: list[tuple[str, str, str | None]]
    ) -> None:
        begin, end = file.span(node)
        line_end = file.text.find("\n", end)
        comment = file.text[end:line_end].strip()
        if "#" in file.text[begin:end]:
            self.by_hand.append(f"{file.path}:{node.lineno}: a comment inside of an import")
        indent = " " * node.col_offset
        by_module: dict[str, list[str]] = {}
        for module, name, alias in wanted:
            by_module.setdefault(module, []).append(f"{name} as {alias}" if alias else name)
        lines = [
            f"from {module} import {', '.join(dict.fromkeys(names))}{comment and f'  {comment}'}"
            for module, names in by_module.items()
        ]
        if not lines and node.col_offset:
            lines = ["pass"]
        file.edits.append(
            (begin, end + len(file.text[end:line_end]) if lines else end, f"\n{indent}".join(lines))
        )

    def _rewrite_dotted(self, file: File, node: ast.Import) -> None:
        for alias in node.names:
            if self._is_ours(alias.name) and self.table.module(alias.name) != alias.name:
                self.by_hand.append(f"{file.path}:{node.lineno}: import {alias.name}")

    def _rewrite_uses(
        self, file: File, uses: dict[str, str], strip: set[str], aliases: dict[str, str]
    ) -> None:
        kept = {
            base
            for node in ast.walk(file.tree)
            if isinstance(node, ast.ClassDef)
            for base in node.bases
        }
        kept = {
            base for base in kept if isinstance(base, ast.Name) and base.id in self._folded_names()
        }
        local = local_names(file.tree)
        kept |= local
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                alias = node.value.id
                if alias in aliases and node.value not in local:
                    name = self.table.name(aliases[alias], node.attr)
                    if alias in strip:
                        file.replace(node, name)
                        continue
                    if name != node.attr:
                        _, end = file.span(node)
                        file.edits.append((end - len(node.attr), end, name))
            elif isinstance(node, ast.Name) and node.id in uses and node not in kept:
                file.replace(node, uses[node.id])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._tell_string(file, node)
            if isinstance(node, ast.Call):
                self._rewrite_patch(file, node, aliases)

    def _folded_names(self) -> set[str]:
        """Return the names of base classes that are folded: their subclass still names them."""
        return {name for _, name in self.table.folds}

    def _rewrite_patch(self, file: File, node: ast.Call, aliases: dict[str, str]) -> None:
        """Rename in `monkeypatch.setattr(module, "name", ...)`."""
        match node.args:
            case [ast.Name(id=alias), ast.Constant(value=str(old)) as name, *_] if alias in aliases:
                new = self.table.name(aliases[alias], old)
                if new != old:
                    file.replace(name, f'"{new}"')

    def _tell_string(self, file: File, node: ast.Constant) -> None:
        """Tell of a string that may name a module: nobody knows whether it does."""
        words = str(node.value).split(".")
        for count in range(len(words), 1, -1):
            module = ".".join(words[:count])
            if self.table.module(module) != module:
                self.by_hand.append(f"{file.path}:{node.lineno}: {node.value!r} is in a string")
                return

    def _write(self, files: dict[str, File]) -> None:
        """Write the new modules and remove the old ones."""
        source = self.root / "src"
        texts: dict[Path, str] = {}
        for new, olds in self.table.merged().items():
            if olds[0] not in files:
                continue
            path = source.joinpath(*new.split(".")).with_suffix(".py")
            if any(new == other and new not in self.table.modules for other in self.modules):
                msg = f"{new} is there already and does not move"
                raise ValueError(msg)
            texts[path] = self._joined(new, [files[old] for old in olds])
        for module, file in files.items():
            if module not in self.table.modules:
                if file.edits:
                    file.path.write_text(file.edited(), "utf-8")
            else:
                file.path.unlink()
        for path, text in texts.items():
            for folder in self._new_packages(path.parent, source):
                (folder / "__init__.py").write_text('"""TODO."""\n', "utf-8")
            path.write_text(text, "utf-8")

    def _new_packages(self, folder: Path, source: Path) -> Iterator[Path]:
        while folder != source:
            if not (folder / "__init__.py").exists():
                folder.mkdir(exist_ok=True)
                self.by_hand.append(f"{folder}/__init__.py wants a docstring")
                yield folder
            folder = folder.parent

    def _joined(self, new: str, files: list[File]) -> str:
        says = self.table.says.get(new)
        head = f'"""{says}"""' if says else (_docstring(files[0]) or '"""TODO."""')
        imports: list[str] = []
        typing: list[str] = []
        bodies: list[str] = []
        future = [_has_future(file) for file in files]
        self._tell_collisions(new, files)
        if any(future) and not all(future):
            self.by_hand.append(f"{new}: only some parts have postponed annotations")
        for file in files:
            body: list[str] = []
            place, end = _after_docstring(file), len(file.text)
            for node in file.tree.body:
                begin, finish = file.span(node)
                into = _imports_into(node, imports, typing)
                if into is None:
                    continue
                between = file.text[place:begin]
                if "#" in between and not body:
                    self.by_hand.append(f"{file.path}: {between.strip()!r} stood among the imports")
                body.append(file.edited(place, begin))
                line_end = file.text.find("\n", finish)
                for part in node.body if isinstance(node, ast.If) else [node]:
                    first, last = file.span(part)
                    last = file.text.find("\n", last)
                    text = file.edited(first, last).strip()
                    if "__future__" not in text:
                        into += [text] if text else []
                place = line_end
            body.append(file.edited(place, end))
            said = _docstring(file) if says or file is not files[0] else ""
            bodies.append(_as_comment(said) + "".join(body).strip("\n"))
        parts = [head, ""]
        if any(future):
            parts += ["from __future__ import annotations", ""]
        parts += [*_dedent(imports), ""]
        if typing:
            parts += ["if TYPE_CHECKING:", *(f"    {line}" for line in _dedent(typing)), ""]
        text = "\n".join(parts) + "\n\n" + "\n\n\n".join(one for one in bodies if one) + "\n"
        text = _without_repeats(text)
        for (module, base), sub in self.table.folds.items():
            if self.table.module(module) == new:
                text = self._folded(text, base, sub)
        return text

    def _tell_collisions(self, new: str, files: list[File]) -> None:
        """Tell of names that two parts of a module define."""
        seen: dict[str, str] = {}
        for file in files:
            for node in file.tree.body:
                for old in _defined(node):
                    name = self.table.names.get((file.module, old), old)
                    words = ast.unparse(node)
                    if seen.setdefault(name, words) != words:
                        self.by_hand.append(f"{new}: {name} of {file.module} is there already")

    def _folded(self, text: str, base: str, sub: str) -> str:
        """Put the members of a base class into its subclass: what makes it first, the rest last."""
        tree = ast.parse(text)
        lines = text.splitlines(keepends=True)
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        old, new = classes[base], classes[sub]
        members: dict[bool, list[str]] = {True: [], False: []}
        place = old.body[0].end_lineno or 0
        if ast.get_docstring(old) is None:
            place = old.lineno
        for node in old.body[1 if ast.get_docstring(old) is not None else 0 :]:
            end = node.end_lineno or 0
            is_method = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            first = not is_method or node.name == "__init__"
            members[first].append("".join(lines[place:end]))
            place = end
        if any("def __init__" in one for one in members[True]) and any(
            isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in new.body
        ):
            self.by_hand.append(f"{base} and {sub} both have __init__")
        bases = [ast.unparse(one) for one in new.bases]
        others = [ast.unparse(one) for one in old.bases if ast.unparse(one) not in bases]
        where = bases.index(base)
        bases[where : where + 1] = others
        keywords = [f"{one.arg}={ast.unparse(one.value)}" for one in new.keywords]
        words = ", ".join([*bases, *keywords])
        head = f"class {sub}({words}):\n" if words else f"class {sub}:\n"
        docstring = ast.get_docstring(new) is not None
        inside = (new.body[0].end_lineno or 0) if docstring else new.lineno
        said = lines[new.body[0].lineno - 1 : inside] if docstring else []
        body = [
            head,
            *said,
            *members[True],
            "\n" if members[True] else "",
            *lines[inside : new.end_lineno],
            "\n",
            *members[False],
        ]
        start = (old.decorator_list[0].lineno if old.decorator_list else old.lineno) - 1
        edits = sorted(
            [(start, old.end_lineno or 0, []), (new.lineno - 1, new.end_lineno or 0, body)],
            reverse=True,
        )
        for begin, end, put in edits:
            lines[begin:end] = put
        return "".join(lines)


def _without_repeats(text: str) -> str:
    """Leave out assignments that an earlier part has made with the same words."""
    lines = text.splitlines(keepends=True)
    seen: set[str] = set()
    for node in ast.parse(text).body:
        words = "".join(lines[node.lineno - 1 : node.end_lineno])
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            if words in seen:
                for line in range(node.lineno - 1, node.end_lineno or 0):
                    lines[line] = ""
            seen.add(words)
    return "".join(lines)


def _imports_into(node: ast.stmt, imports: list[str], typing: list[str]) -> list[str] | None:
    """Return the list that takes the imports of a statement, or None when it is no import."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return imports
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
        return typing
    return None


def _dedent(statements: list[str]) -> list[str]:
    """Return the lines of import statements, each statement once."""
    return [line.strip() for text in dict.fromkeys(statements) for line in text.split("\n")]


def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _docstring(file: File) -> str:
    if ast.get_docstring(file.tree) is None:
        return ""
    begin, end = file.span(file.tree.body[0])
    return file.text[begin:end]


def _as_comment(docstring: str) -> str:
    """Return what the docstring of a module said as a comment above its definitions."""
    lines = ast.literal_eval(docstring).strip().splitlines() if docstring else []
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + ("\n\n" if lines else "")


def _after_docstring(file: File) -> int:
    if ast.get_docstring(file.tree) is None:
        return 0
    return file.span(file.tree.body[0])[1]


def _has_future(file: File) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in file.tree.body
    )


def tidy(root: Path, places: Iterable[str] = PLACES) -> None:
    """Sort imports and format, as the rules of the project say."""
    ruff = [sys.executable, "-m", "ruff"]
    rules = ["check", "--fix", "--quiet", "--select", "I,F401,F811", "--exit-zero"]
    subprocess.run([*ruff, *rules, *places], cwd=root, check=True)
    subprocess.run([*ruff, "format", "--quiet", *places], cwd=root, check=True)


def main(words: list[str]) -> int:
    """Move, and print what has to be done by hand."""
    root = Path(words[1]) if len(words) > 1 else Path()
    mover = Mover(root, Table.read(Path(words[0])))
    mover.run()
    tidy(root)
    for line in mover.by_hand:
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
