"""Runs the Python of a Markdown page as a reader would: from top to bottom, in one module.

Each fenced block says its language, and every `python` block is executed. Two comments at the
end of a statement are promises that are checked:

    charge(order)        # -> Receipt(number='r-1')      the repr of the expression
    charge(other_order)  # raises KeyReusedError         the type that is raised
"""

import ast
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)$")
PROMISE = re.compile(r"# (?P<kind>->|raises) (?P<what>.+?)\s*$")
OTHER_LANGUAGES = {"console", "html", "json", "sql", "text", "toml", "{include}", "{toctree}"}
GENERATED = {"pycon", "pyi"}
"""Signatures and examples from docstrings, which only the generated pages of the API have."""


class BrokenPromiseError(AssertionError):
    """A page says something that is not so."""


@dataclass
class Block:
    """A fenced block: its language, the line on which its code starts, and the code."""

    language: str
    line: int
    code: str


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block of a page, in order."""
    opening: re.Match[str] | None = None
    lines: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opening is None:
            if fence is not None and fence["info"].strip():
                opening, lines, start = fence, [], number + 1
            elif fence is not None:
                yield Block("", number, "")  # a block without a language is nobody's
                opening, lines, start = fence, [], number + 1
        elif fence is not None and fence["marks"] == opening["marks"] and not fence["info"].strip():
            language = opening["info"].split(maxsplit=1)[0] if opening["info"].strip() else ""
            indent = len(opening["indent"])
            if language:
                yield Block(language, start, "\n".join(one[indent:] for one in lines))
            opening = None
        else:
            lines.append(line)
    if opening is not None:
        yield Block("", start - 1, "")


def run(page: Path, text: str, name: str) -> types.ModuleType:
    """Execute every Python block of the page in a module of that name, which must be in use."""
    module = sys.modules[name]
    allowed = OTHER_LANGUAGES | GENERATED if page.parent.name == "api" else OTHER_LANGUAGES
    for block in blocks(text):
        if block.language == "python":
            run_block(page, block, module)
        elif block.language not in allowed:
            msg = f"{page.name}:{block.line}: a block in {block.language or 'no language'!r}"
            raise BrokenPromiseError(msg)
    return module


def run_block(page: Path, block: Block, module: types.ModuleType) -> None:
    tree = ast.parse(block.code, str(page))
    ast.increment_lineno(tree, block.line - 1)
    lines = block.code.splitlines()
    for statement in tree.body:
        last = (statement.end_lineno or statement.lineno) - block.line
        promise = PROMISE.search(lines[last])
        where = f"{page.name}:{statement.lineno}"
        if promise is None:
            execute(page, statement, module)
        elif promise["kind"] == "raises":
            must_raise(page, statement, module, promise["what"], where)
        else:
            must_be(page, statement, module, promise["what"], where)


def execute(page: Path, statement: ast.stmt, module: types.ModuleType) -> None:
    code = compile(ast.Module([statement], []), str(page), "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102  # the pages are ours, and running them is the test


def must_raise(
    page: Path, statement: ast.stmt, module: types.ModuleType, wanted: str, where: str
) -> None:
    try:
        execute(page, statement, module)
    except BaseException as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        if wanted not in names:
            msg = f"{where}: raises {type(error).__name__}, not {wanted}"
            raise BrokenPromiseError(msg) from error
    else:
        msg = f"{where}: does not raise {wanted}"
        raise BrokenPromiseError(msg)


def must_be(
    page: Path, statement: ast.stmt, module: types.ModuleType, wanted: str, where: str
) -> None:
    if not isinstance(statement, ast.Expr):
        msg = f"{where}: only an expression has a value to promise"
        raise BrokenPromiseError(msg)
    code = compile(ast.Expression(statement.value), str(page), "eval", dont_inherit=True)
    value = repr(eval(code, module.__dict__))  # noqa: S307  # see execute
    if value != wanted:
        msg = f"{where}: is {value}, not {wanted}"
        raise BrokenPromiseError(msg)
