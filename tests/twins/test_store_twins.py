"""The two colours of a store are the same code, as those of the engine are."""

import ast
from pathlib import Path

import pytest

from tests.twins import test_twins as twins

STORES = twins.SOURCE / "stores"

# The names that may differ, per pair of files.
PAIRS = {
    "redis/store": {
        "AsyncRedisStore": "RedisStore",
        "AsyncClients": "Clients",
        "aclose": "close",
    },
    "postgres/store": {
        "AsyncPostgresStore": "PostgresStore",
        "AsyncCrowd": "Link",
        "AsyncWatch": "Watch",
        "PerLoop": "PerProcess",
        "aclose": "close",
    },
    "postgres/pool": {
        "AsyncLink": "Link",
        "AsyncGate": "Gate",
        "AsyncConnection": "Connection",
        "ask_async": "ask",
    },
    "postgres/listen": {
        "AsyncWatch": "Watch",
        "AsyncGate": "Gate",
    },
}
# Methods that only the blocking colour has.
ONE_COLOUR = {"as_async"}
# Pairs of another shape: the coroutines of SQLite lead on a thread of the blocking store, and those
# of Redis share a connection.
NOT_TWINS = {"sqlite/store", "redis/connection"}


class Bleach(twins.Bleach):
    """Takes the colour out of a store as well."""

    def visit_FunctionDef(self, node):  # noqa: N802 - ast calls it so
        return None if node.name in ONE_COLOUR else super().visit_FunctionDef(node)

    def visit_ListComp(self, node):  # noqa: N802 - ast calls it so
        self.generic_visit(node)
        for one in node.generators:
            one.is_async = 0
        return node

    def visit_If(self, node):  # noqa: N802 - ast calls it so
        types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if types else self.generic_visit(node)


def bleached(path: Path, monkeypatch, pairs) -> list[str]:
    monkeypatch.setattr(twins, "PAIRS", pairs)
    monkeypatch.setattr(twins, "Bleach", Bleach)
    return twins.bleached(path)


@pytest.mark.parametrize("name", PAIRS)
def test_the_twins_are_equal_but_for_their_colour(name, monkeypatch):
    sync = bleached(STORES / f"{name}.py", monkeypatch, PAIRS[name])
    assert sync == bleached(STORES / f"{name}_async.py", monkeypatch, PAIRS[name])


def test_every_store_with_a_twin_is_compared():
    files = STORES.rglob("*_async.py")
    found = {path.relative_to(STORES).as_posix().removesuffix("_async.py") for path in files}
    assert found - NOT_TWINS == set(PAIRS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_drift_of_one_token_is_seen(name, monkeypatch, tmp_path):
    text = (STORES / f"{name}_async.py").read_text()
    drifted = text.replace("        return ", "        yield ", 1)
    assert drifted != text
    copy = tmp_path / "drifted_async.py"
    copy.write_text(drifted)
    sync = bleached(STORES / f"{name}.py", monkeypatch, PAIRS[name])
    assert sync != bleached(copy, monkeypatch, PAIRS[name])
