"""The two colours of a bus are the same code, as `tests/twins` compares it."""

import ast
from pathlib import Path

import pytest

from tests.twins import test_twins as twins

EVENTS = Path(__file__).parents[3] / "src" / "oncekey" / "events"
PAIRS = {
    "AsyncBus": "Bus",
    "AsyncRedisLog": "RedisLog",
    "AsyncMemoryLog": "MemoryLog",
    "AsyncClients": "Clients",
    "AsyncEventLog": "EventLog",
    "open_log_async": "open_log",
    "redis_log_async": "redis_log",
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
TWINS = ["bus", "redis_log"]
# Only coroutines follow a job.
ONE_COLOUR = {"subscribe", "follow", "listening", "following", "_wakeups"}


class Bleach(twins.Bleach):
    """Takes out what only one colour has, and docstrings, too."""

    def visit_FunctionDef(self, node):  # noqa: N802 - ast calls it so
        if node.name in ONE_COLOUR:
            return None
        if ast.get_docstring(node):
            node.body = node.body[1:]
        return super().visit_FunctionDef(node)

    def visit_AsyncFunctionDef(self, node):  # noqa: N802 - ast calls it so
        return None if node.name in ONE_COLOUR else super().visit_AsyncFunctionDef(node)

    def visit_ClassDef(self, node):  # noqa: N802 - ast calls it so
        node.body = node.body[1:]
        return super().visit_ClassDef(node)

    def visit_Assign(self, node):  # noqa: N802 - ast calls it so
        return self._kept(node, node.targets[0])

    def visit_AnnAssign(self, node):  # noqa: N802 - ast calls it so
        return self._kept(super().visit_AnnAssign(node), node.target)

    def visit_Import(self, _):  # noqa: N802 - ast calls it so
        return None

    def _kept(self, node, target):
        one_colour = isinstance(target, ast.Attribute) and target.attr in ONE_COLOUR
        return None if one_colour else self.generic_visit(node)


@pytest.fixture
def bleached(monkeypatch):
    monkeypatch.setattr(twins, "PAIRS", PAIRS)
    monkeypatch.setattr(twins, "Bleach", Bleach)
    return twins.bleached


@pytest.mark.parametrize("name", TWINS)
def test_the_twins_are_equal_but_for_their_colour(name, bleached):
    assert bleached(EVENTS / f"{name}.py") == bleached(EVENTS / f"{name}_async.py")


def test_every_file_with_a_twin_is_compared():
    found = {path.name.removesuffix("_async.py") for path in EVENTS.glob("*_async.py")}
    assert found == set(TWINS)
