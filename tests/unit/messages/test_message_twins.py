"""The two colours of the inbox are the same code, as `tests/twins` compares it."""

import ast
from pathlib import Path

import pytest

from tests.twins import test_twins as twins

MESSAGES = Path(__file__).parents[3] / "src" / "oncekey" / "messages"
PAIRS = {
    "AsyncConnected": "Connected",
    "AsyncTransaction": "Transaction",
    "AsyncDelivery": "Delivery",
    "AsyncAtomic": "Atomic",
    "AsyncLeased": "Leased",
    "AsyncInbox": "Inbox",
    "attempt_async": "attempt",
    "enter_async": "enter",
    "connected_async": "connected",
    "invoke_async": "invoke",
    "engine_async": "engine",
    "store_async": "store",
    "on_thread": "here",
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
# Drivers have names of their own, and Django has no other colour.
DRIVERS = {
    "AsyncOneByOne": "OneByOne",
    "AsyncPsycopg": "Psycopg",
    "AsyncSQLite": "SQLite",
    "AsyncSQLAlchemy": "SQLAlchemy",
    "async psycopg": "psycopg",
    "async sqlalchemy": "sqlalchemy",
    "async scoped": "scoped",
    "async sqlite3": "sqlite3",
    "get_raw_connection": "connection",
}
ONE_COLOUR = {"Django", "_UndoneError", "Claim", "Completing", "AsyncCompleting"}
TWINS = ["transaction", "atomic", "leased", "inbox", "drivers", "drivers_psycopg"]


class Bleach(twins.Bleach):
    """Takes out what only one colour has, too."""

    def visit_ClassDef(self, node):  # noqa: N802 - ast calls it so
        return None if node.name in ONE_COLOUR else super().visit_ClassDef(node)

    def visit_Dict(self, node):  # noqa: N802 - ast calls it so
        kept = [
            (key, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if not (isinstance(value, ast.Name) and value.id in ONE_COLOUR)
        ]
        node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
        return self.generic_visit(node)

    def visit_ListComp(self, node):  # noqa: N802 - ast calls it so
        self.generic_visit(node)
        for one in node.generators:
            one.is_async = 0
        return node

    def visit_Call(self, node):  # noqa: N802 - ast calls it so
        """The raw connection is a property in one colour and a method in the other."""
        raw = isinstance(node.func, ast.Attribute) and node.func.attr == "get_raw_connection"
        return self.visit(node.func) if raw else self.generic_visit(node)


@pytest.fixture
def bleached(monkeypatch):
    monkeypatch.setattr(twins, "PAIRS", PAIRS | DRIVERS)
    monkeypatch.setattr(twins, "Bleach", Bleach)
    return twins.bleached


@pytest.mark.parametrize("name", TWINS)
def test_the_twins_are_equal_but_for_their_colour(name, bleached):
    sync = bleached(MESSAGES / f"{name}.py")
    coroutine = bleached(MESSAGES / f"{name}_async.py")
    if name == "drivers":  # each names the other one
        coroutine = [line.replace("kind, 'Inbox'", "kind, 'AsyncInbox'") for line in coroutine]
        sync = [line.replace("kind, 'Inbox'", "kind, 'AsyncInbox'") for line in sync]
    assert sync == coroutine


def test_every_file_with_a_twin_is_compared():
    found = {path.name.removesuffix("_async.py") for path in MESSAGES.glob("*_async.py")}
    assert found == set(TWINS)


@pytest.mark.parametrize("name", TWINS)
def test_a_drift_of_one_token_is_seen(name, bleached, tmp_path):
    text = (MESSAGES / f"{name}_async.py").read_text()
    drifted = text.replace("        return ", "        yield ", 1)
    assert drifted != text
    copy = tmp_path / f"{name}_async.py"
    copy.write_text(drifted)
    assert bleached(copy) != bleached(MESSAGES / f"{name}.py")
