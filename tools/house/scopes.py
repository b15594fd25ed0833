"""Which names of a file mean something of their own: arguments, variables and fields of classes."""

from __future__ import annotations

import ast

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def local_names(tree: ast.Module) -> set[ast.Name]:
    """Return the uses of names that a function or a class binds, and no import of the module."""
    found: set[ast.Name] = set()
    _collect(tree, frozenset(), found)
    return found


def _collect(node: ast.AST, bound: frozenset[str], found: set[ast.Name]) -> None:
    """Collect below a node. What a class binds is not seen by its methods."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id in bound:
            found.add(child)
        if isinstance(child, _FUNCTIONS):
            _collect_function(child, bound, found)
        elif isinstance(child, ast.ClassDef):
            for part in [*child.bases, *child.keywords, *child.decorator_list]:
                _collect(ast.Expr(part) if isinstance(part, ast.expr) else part, bound, found)
            own = bound | _assigned(child.body)
            for part in child.body:
                if isinstance(part, _FUNCTIONS):
                    _collect_function(part, bound, found)
                else:
                    _collect(ast.Module([part], []), own, found)
        else:
            _collect(child, bound, found)


def _collect_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
    bound: frozenset[str],
    found: set[ast.Name],
) -> None:
    body = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    outside = [*given.defaults, *(one for one in given.kw_defaults if one is not None)]
    outside += [
        one.annotation for one in ast.walk(given) if isinstance(one, ast.arg) and one.annotation
    ]
    if not isinstance(node, ast.Lambda):
        outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
    for part in outside:
        _collect(ast.Expr(part), bound, found)
    inside = (bound | frozenset(names) | _assigned(body)) - _declared(body)
    _collect(ast.Module(list(body), []), inside, found)


def _assigned(body: list[ast.stmt]) -> frozenset[str]:
    """Return the names that statements assign, those of functions inside of them left out."""
    names: set[str] = set()
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        todo += ast.iter_child_nodes(node)
    return frozenset(names)


def _declared(body: list[ast.stmt]) -> frozenset[str]:
    return frozenset(
        name
        for node in body
        for one in ast.walk(node)
        if isinstance(one, (ast.Global, ast.Nonlocal))
        for name in one.names
    )
