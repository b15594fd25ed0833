"""The two colours are the same code: with `async` and `await` taken away, the trees are equal."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "oncekey"

# Everything that may differ.
PAIRS = {
    "AsyncRecords": "Records",
    "AsyncMarkers": "Markers",
    "engine_async": "engine",
    "pause_async": "pause",
}
TOGETHER = ["records", "markers"]
"""Modules in which both colours stand."""


class Bleach(ast.NodeTransformer):
    """Takes the colour out: async, await, paired names, annotations, imports and docstrings."""

    def visit_AsyncFunctionDef(self, node):
        return self.visit_FunctionDef(ast.FunctionDef(**vars(node)))

    def visit_FunctionDef(self, node):
        if any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list):
            return None  # types alone
        self.generic_visit(node)
        node.name = PAIRS.get(node.name, node.name)
        node.returns = None
        return node

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        self.generic_visit(node)
        return ast.Assign([node.target], node.value or ast.Constant(None), lineno=0)

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        node.name = PAIRS.get(node.name, node.name)
        return node

    def visit_Await(self, node):
        return self.visit(node.value)

    def visit_AsyncFor(self, node):
        return self.generic_visit(ast.For(**vars(node)))

    def visit_AsyncWith(self, node):
        return self.generic_visit(ast.With(**vars(node)))

    def visit_ListComp(self, node):
        self.generic_visit(node)
        for one in node.generators:
            one.is_async = 0
        return node

    def visit_Name(self, node):
        node.id = PAIRS.get(node.id, node.id)
        return node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        node.attr = PAIRS.get(node.attr, node.attr)
        return node

    def visit_Constant(self, node):
        if isinstance(node.value, str):  # messages may name the other colour
            node.value = PAIRS.get(node.value, node.value)
        return node

    def visit_ImportFrom(self, node):
        return None


def without_colour(tree: ast.Module) -> list[str]:
    tree = Bleach().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree)).splitlines()


@pytest.mark.parametrize("name", TOGETHER)
def test_what_stands_in_one_file_is_equal_but_for_its_colour(name):
    tree = ast.parse((SOURCE / f"{name}.py").read_text())
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name: node for node in tree.body if isinstance(node, kinds)}
    coloured = [one for one in found if one.startswith("Async") or one.endswith("_async")]
    assert coloured
    for one in coloured:
        sync, coroutine = (
            without_colour(ast.Module([found[which]], [])) for which in (PAIRS[one], one)
        )
        assert [line.replace("'current_async'", "'current'") for line in sync] == coroutine


def test_a_drift_of_one_token_is_seen():
    text = "async def check(self):\n    return await self.get() > 0\n"
    drifted = text.replace("> 0", ">= 0").replace("async ", "").replace("await ", "")
    assert without_colour(ast.parse(drifted)) != without_colour(ast.parse(text))
