"""The habits of the house that can be tested: names, base classes and private access."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "oncekey"

SAME_NAME = {
    "PrometheusObserver": "public twice: each package of observers has its own",
}
ONE_SUBCLASS = {
    "Effect": "what a test of a user counts, with a colour of its own for coroutines",
    "Flights": "the testing package lets every caller ask the store by itself",
    "Inline": "a store that never waits needs no thread, and one on threads is the same otherwise",
    "PolicyFields": "a middleware takes the fields of a policy and settings of its own",
    "Run": "code on a thread sees the run of the coroutine that waits for it",
    "Threaded": "the coroutines of SQLite lead on a thread of the blocking store",
}


def classes() -> dict[str, list[tuple[str, list[str]]]]:
    """Where each class is defined, and of what, without the published suite for stores."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith("testing/conformance/"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(one).split("[")[0].split(".")[-1] for one in node.bases]
                found[node.name].append((name, bases))
    return found


def is_exempt(places: list[tuple[str, list[str]]], name: str) -> bool:
    return name.endswith("Error") or any("Protocol" in bases for _, bases in places)


def test_the_name_of_a_class_means_one_thing():
    twice = {
        name: [place for place, _ in places]
        for name, places in classes().items()
        if len(places) > 1 and not is_exempt(places, name)
    }
    public = (ROOT / "tools" / "public_names.txt").read_text("utf-8")
    private = {name for name in twice if f".{name}(" not in public}
    assert private == set(SAME_NAME)


def test_a_base_class_has_two_subclasses():
    found = classes()
    subclasses = defaultdict(set)
    for name, places in found.items():
        for _, bases in places:
            for base in bases:
                subclasses[base].add(name)
    lonely = {
        base
        for base, below in subclasses.items()
        if base in found and len(below) == 1 and not is_exempt(found[base], base)
    }
    public = (ROOT / "tools" / "public_names.txt").read_text("utf-8")
    assert {one for one in lonely if f".{one}(" not in public} == set(ONE_SUBCLASS)
