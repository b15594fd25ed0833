"""Turns a test module of blocking code into the same tests of coroutines.

What is tested is written once. Calls of the front door become their `_async` forms and are
awaited, functions that await become coroutine functions, and line numbers stay, so that a failure
points at the line in the blocking module.
"""

import ast
import functools
from pathlib import Path
from typing import Any

from _pytest.assertion.rewrite import rewrite_asserts

from oncekey.functions import is_blocking

# Methods of `Once`, which have another name for coroutines.
DOOR = {
    name: f"{name}_async"
    for name in (
        *("run", "get", "forget", "resolve", "purge"),
        *("check", "keep_result", "read_result"),
    )
}
# Methods with the same name, or of the tests' own helpers.
AWAITED = {"note", "step", "complete", "release", "outcome", "record"}
RENAMED = {"enter": "enter_async", "until_inside": "until_inside_async"}
WAITED_FOR = ("until", "until_status", "until_waiting")
NAMES = {name: f"{name}_async" for name in ("current", "start", "CUT_OFF", *WAITED_FOR)}
WAITING = {f"{name}_async" for name in WAITED_FOR}


def awaiting(path: Path, namespace: dict[str, Any]) -> None:
    """The tests of the module at `path` are in the namespace, as coroutines."""
    source = path.read_text()
    coroutines: set[str] = set()
    while True:  # a function that calls a coroutine function becomes one itself
        transformer = _Await(coroutines)
        changed = transformer.visit(ast.parse(source))
        if transformer.coroutines == coroutines:
            break
        coroutines = transformer.coroutines
    tree = ast.fix_missing_locations(changed)
    rewrite_asserts(tree, source.encode(), str(path))
    namespace["coroutine"] = _coroutine
    exec(compile(tree, str(path), "exec"), namespace)  # noqa: S102 - our own tests


def _coroutine(function: Any) -> Any:
    """The function as a coroutine function, if it surely is none."""
    if not is_blocking(function):
        return function

    @functools.wraps(function)
    async def work(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return work


class _Await(ast.NodeTransformer):
    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.coroutines = set(known)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.name in self.known or _protected(node) or _awaits(node):
            self.coroutines.add(node.name)
            return ast.copy_location(ast.AsyncFunctionDef(**vars(node)), node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.body, ast.Await):  # it hands the coroutine on instead
            node.body = node.body.value
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        body: list[ast.stmt] = node.body
        for item in reversed(node.items):  # one `with` for each, so that each has its colour
            kind = ast.AsyncWith if _enters_attempt(item.context_expr) else ast.With
            body = [ast.copy_location(kind([item], body), node)]
        return body[0]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = RENAMED.get(node.attr, node.attr)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = NAMES.get(node.id, node.id)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        for alias in node.names:
            if (node.module, alias.name) == ("oncekey.engine", "engine"):
                alias.name, alias.asname = "engine_async", alias.asname or "engine"
            alias.name = NAMES.get(alias.name, alias.name)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        func = node.func
        if isinstance(func, ast.Attribute):
            if ast.unparse(func) == "time.sleep":
                func.value = ast.Name("asyncio", ast.Load())
                return _await(node)
            protected = isinstance(func.value, ast.Name) and func.value.id in self.known
            if func.attr in DOOR and not protected:
                func.attr = DOOR[func.attr]
                if func.attr == "run_async" and len(node.args) > 1:
                    node.args[1] = ast.Call(ast.Name("coroutine", ast.Load()), [node.args[1]], [])
                return _await(node)
            if func.attr in AWAITED | set(RENAMED.values()) or (
                protected and func.attr == "forget"
            ):
                return _await(node)
        elif isinstance(func, ast.Name) and func.id in self.known | WAITING:
            return _await(node)
        return node


def _enters_attempt(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "attempt"
    )


def _await(node: ast.Call) -> ast.Await:
    return ast.copy_location(ast.Await(node), node)


def _protected(node: ast.FunctionDef) -> bool:
    """Whether it is decorated with a `Once`."""
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and "once" in one.func.id
        for one in node.decorator_list
    )


def _awaits(node: ast.AST) -> bool:
    """Whether the function itself awaits, not counting those inside it."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return any(
        isinstance(child, ast.Await | ast.AsyncWith | ast.AsyncFor)
        or (not isinstance(child, inner) and _awaits(child))
        for child in ast.iter_child_nodes(node)
    )
