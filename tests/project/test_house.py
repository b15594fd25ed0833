"""The habits of the house that can be tested: names, base classes and private access."""

import ast
import tomllib
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
    "Migration": "Django calls its own class so, and asks for the same name",
    "PolicyFields": "a middleware takes the fields of a policy and settings of its own",
    "Run": "code on a thread sees the run of the coroutine that waits for it",
    "Threaded": "the coroutines of SQLite lead on a thread of the blocking store",
}

OF_OTHERS = {
    "_body _read_started _stream": ("http/django.py", "a body is read twice without a copy"),
    "_resource_closers": ("http/django.py", "a response is closed together with another one"),
    "_parser _sock": ("stores/redis/connection.py", "a connection of redis-py is used directly"),
    "_parser _writer": ("stores/redis/connection_async.py", "the same for coroutines"),
    "_sock _transport": (
        "stores/mysql/drivers.py",
        "an idle connection that the server has closed is noticed before anything is sent",
    ),
    "_read_timeout _write_timeout": (
        "stores/mysql/drivers.py",
        "a connection of an engine waits for an answer no longer than the store does",
    ),
    "_cursor _finish _payload _read_bytes": (
        "http/aiohttp.py",
        "a request gets its body back, says what was read of it, and gives up its files",
    ),
    "_buckets _sum": ("observe/prometheus.py", "many durations are added at once"),
    "_get_current_object": ("jobs/celery.py", "the task behind Celery's proxy"),
    "_client": ("messages/jetstream.py", "a server is asked for the limits of a consumer"),
    "_publish": ("messages/faststream.py", "a reply is kept with the command of its publisher"),
    "_enable_auto_commit": ("messages/kafka.py", "a consumer that loses records is refused"),
    "_getframe": ("compat.py", "`inspect` does the same and costs more"),
    "_log_destroy_pending": ("stores/adapters.py", "asyncio.gather silences its tasks so too"),
}
"""Private names of other libraries, where they are used, and for what there is no public way."""


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


def private_names(path: Path) -> set[str]:
    """Return the private attributes that the module uses of what is not `self` or `cls`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    }


def test_no_module_reaches_into_another():
    """ruff (SLF001) refuses it but for the names of other libraries, which have their places."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    names = set(rules["flake8-self"]["extend-ignore-names"])
    allowed = {(place, name) for words, (place, _) in OF_OTHERS.items() for name in words.split()}
    assert names == {name for _, name in allowed}
    sources = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    assert not [name for name, path in sources.items() if "SLF001" in path.read_text("utf-8")]
    used = {
        (place, name) for place, path in sources.items() for name in private_names(path) & names
    }
    assert used == allowed
