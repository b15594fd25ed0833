"""Every name that a user may import, with its signature: `python -m tools.public_names [--write]`.

A module is public when it has `__all__`. The list is kept in the tree, so that a change of what
users can rely on is seen in a review.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import oncekey

PRIVATE = ("oncekey.cli", "oncekey.django", "oncekey.inspection")
ELSEWHERE = ("oncekey.jobs.arq", "oncekey.jobs.saq")
"""Public, but not to be imported here: their packages want another redis-py than ours."""
KEPT = Path(__file__).with_suffix(".txt")


def public_names() -> Iterator[str]:
    """Return a line for every public name, and for every public method that a class of ours has."""
    for module in ["oncekey", *sorted(_modules())]:
        names = getattr(importlib.import_module(module), "__all__", ())
        for name in sorted(names):
            value = getattr(importlib.import_module(module), name)
            yield f"{module}.{name}{_signature(value)}"
            if inspect.isclass(value):
                for method in sorted(_methods(value)):
                    yield f"{module}.{name}.{method}{_signature(getattr(value, method))}"


def _methods(kind: type) -> set[str]:
    ours = [one for one in kind.__mro__ if one.__module__.partition(".")[0] == "oncekey"]
    return {name for one in ours for name in vars(one) if not name.startswith("_")}


def _modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(oncekey.__path__, "oncekey."):
        if not found.name.startswith((*PRIVATE, *ELSEWHERE)) and not found.name.endswith(
            "__main__"
        ):
            yield found.name


def _signature(value: object) -> str:
    if not callable(value):
        return ""
    try:
        return re.sub(r" at 0x\w+|typing\.", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(...)"


def main(words: list[str]) -> int:
    """Print the names, or keep them."""
    text = "".join(f"{line}\n" for line in public_names())
    if "--write" in words:
        KEPT.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
