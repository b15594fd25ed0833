"""The API pages, docs/api/*.md, written from the code: `python -m tools.api_reference [--check]`.

Nothing is imported, the sources are only parsed: the pages come out the same whichever extras are
installed. Signatures have the types as the code has them, and the text is that of the docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
API = ROOT / "docs" / "api"
WIDTH = 92
UNSET = ("UNSET", "MISSING")
"""Names of defaults that mean: leave it out."""
GIVEN = ("Attempt", "AsyncAttempt", "Delivery", "AsyncDelivery")
"""Classes whose objects users are given and do not make."""
INTERNAL = {"Once": {"active", "core", "having", "use"}}
"""Members without an underscore by which our own modules use a class."""
PROTOCOLS = ("Store", "AsyncStore")
OF_FIELDS = {"Struct", "NamedTuple", "TypedDict"}
"""Bases of classes that are made from their fields."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef

LISTED = {
    "oncekey.policy": ("Duration", "OnError", "OnCrash", "FailMode", "PolicyFields"),
    "oncekey.observe": ("Event", "Observer", "Name", "Surface"),
    "oncekey.observe.log": ("LogObserver",),
    "oncekey.observe.structlog": ("StructlogObserver",),
    "oncekey.observe.prometheus": ("PrometheusObserver",),
    "oncekey.observe.opentelemetry": ("OpenTelemetryObserver",),
    "oncekey.http.presets": (
        *("github", "gitlab", "shopify", "slack"),
        *("standard_webhooks", "stripe", "svix", "twilio"),
    ),
    "oncekey.messages.purge": ("due_messages", "purge_messages"),
    "oncekey.events.starlette": ("EventResponse",),
    "oncekey.events.client": ("client_path", "client_app"),
    "oncekey.events.observers": ("Happening", "Observer"),
    "oncekey.events.prometheus": ("PrometheusObserver",),
}
"""What users import from modules without `__all__`."""


@dataclass(frozen=True)
class ApiPage:
    """One page: its file, its title, and the modules that it describes."""

    name: str
    title: str
    modules: tuple[str, ...]


def _below(package: str, *names: str) -> tuple[str, ...]:
    return (package, *(f"{package}.{name}" for name in names))


PAGES = (
    ApiPage("once", "Once, policies, records and errors", ("oncekey", "oncekey.policy")),
    ApiPage("stores", "Stores", ("oncekey.stores",)),
    ApiPage(
        "http",
        "HTTP",
        _below(
            "oncekey.http",
            *("asgi", "wsgi", "fastapi", "flask", "django", "aiohttp"),
            *("presets", "client", "openapi", "apispec"),
        ),
    ),
    ApiPage(
        "jobs",
        "Jobs",
        _below(
            "oncekey.jobs",
            *("celery", "dramatiq", "taskiq", "rq", "huey", "arq", "saq"),
            *("procrastinate", "django"),
        ),
    ),
    ApiPage("messages", "Messages", _below("oncekey.messages", "faststream", "kafka", "purge")),
    ApiPage("outbox", "Outbox", _below("oncekey.outbox", "targets")),
    ApiPage(
        "events",
        "Events",
        _below("oncekey.events", "starlette", "client", "observers", "prometheus"),
    ),
    ApiPage(
        "observe",
        "Observers",
        _below("oncekey.observe", "log", "structlog", "prometheus", "opentelemetry"),
    ),
    ApiPage(
        "operate",
        "Doctor, dashboard and exporter",
        ("oncekey.doctor", "oncekey.dashboard", "oncekey.exporter"),
    ),
    ApiPage("testing", "Testing", ("oncekey.testing",)),
)


@dataclass
class SourceModule:
    """A parsed module: what it defines, and where the names come from that it imports."""

    lines: list[bytes]
    tree: ast.Module
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """What `__all__` lists."""


@cache
def module_of(name: str) -> SourceModule | None:
    """Parse a module of the package. Return None for one that is not ours."""
    path = SOURCE.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file():
        return None
    text = path.read_bytes()
    module = SourceModule(text.splitlines(), ast.parse(text))
    for statement in ast.walk(module.tree):
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for imported in statement.names:
                origin = statement.module, imported.name
                module.imports[imported.asname or imported.name] = origin
    for node in _statements(module.tree.body):
        name = _defined(node)
        if name == "__all__" and isinstance(node, ast.Assign):
            module.names = tuple(ast.literal_eval(node.value))
        elif name and isinstance(node, Definition):
            module.definitions[name] = node
    return module


def _defined(node: ast.stmt) -> str:
    """Return the name that a statement defines, or nothing."""
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Return the statements, with those that stand below an `if` or a `try`."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements(node.body)
            yield from _statements(node.orelse)
        else:
            yield node


def find(module: str, name: str) -> tuple[SourceModule, Definition, str] | None:
    """Return where a name is defined: the module, the statement, and the module's name."""
    known = module_of(module)
    if known is None:
        return None
    if name in known.definitions:
        return known, known.definitions[name], module
    return find(*known.imports[name]) if name in known.imports else None


# Text


def _source(module: SourceModule, node: ast.expr) -> str:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    lines = module.lines[first : last + 1]
    lines[-1] = lines[-1][: node.end_col_offset]  # the end first: both may be on one line
    lines[0] = lines[0][node.col_offset :]
    text = " ".join(b" ".join(lines).decode().split())
    return re.sub(r"([(\[]) | ?,? (?=[)\]])", r"\1", text)


def _default(module: SourceModule, node: ast.expr) -> str:
    text = _source(module, node)
    made = re.fullmatch(r"(?:dataclasses\.)?field\(default_factory=(\w+)\)", text)
    return "..." if text in UNSET else f"{made[1]}()" if made else text


def parameters(module: SourceModule, function: Function, *, bound: bool) -> list[str]:
    """Return the parameters as they are written, without `self` and `cls`."""
    told = function.args
    plain = [*told.posonlyargs, *told.args]
    defaults = [None] * (len(plain) - len(told.defaults)) + list(told.defaults)
    listed = [_parameter(module, *one) for one in zip(plain, defaults, strict=True)]
    if told.posonlyargs:
        listed.insert(len(told.posonlyargs), "/")
    if bound and listed:
        del listed[0]
        if listed[:1] == ["/"]:
            del listed[0]
    if told.vararg:
        listed.append("*" + _parameter(module, told.vararg, None))
    elif told.kwonlyargs:
        listed.append("*")
    listed += [
        _parameter(module, *one) for one in zip(told.kwonlyargs, told.kw_defaults, strict=True)
    ]
    if told.kwarg:
        listed.append("**" + _parameter(module, told.kwarg, None))
    return listed


def _parameter(module: SourceModule, told: ast.arg, default: ast.expr | None) -> str:
    text = told.arg
    if told.annotation is not None:
        text += f": {_source(module, told.annotation)}"
    if default is not None:
        text += f"{' = ' if told.annotation else '='}{_default(module, default)}"
    return text


def signature(opening: str, listed: list[str], ending: str = "") -> str:
    """Return a signature in a block of code, on one line if it fits."""
    line = f"{opening}({', '.join(listed)}){ending}"
    if len(line) > WIDTH and listed:
        line = "\n".join([f"{opening}(", *(f"    {one}," for one in listed), f"){ending}"])
    return f"```pyi\n{line}\n```"


def _function(module: SourceModule, function: Function, *, bound: bool = False) -> str:
    opening = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    ending = f" -> {_source(module, function.returns)}" if function.returns else ""
    listed = parameters(module, function, bound=bound)
    return signature(f"{opening} {function.name}", listed, ending)


def paragraphs(node: ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef | ast.Module) -> str:
    """Return the docstring, with its examples in blocks of code, or nothing."""
    parts = (ast.get_docstring(node) or "").split("\n\n")
    return "\n\n".join(
        f"```pycon\n{part}\n```" if part.startswith(">>> ") else part for part in parts
    )


def _remark(body: list[ast.stmt], number: int) -> str:
    """Return the string that stands below a statement and describes it."""
    match body[number + 1 : number + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return inspect.cleandoc(text)
    return ""


# Classes


@dataclass
class Member:
    """A method, a property or a field of a class."""

    module: SourceModule
    node: Definition
    remark: str = ""


def members(module: SourceModule, kind: ast.ClassDef, where: str) -> dict[str, Member]:
    """Return the public members of a class, with those that it inherits from ours."""
    found: dict[str, Member] = {}
    for base in kind.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(name, ast.Name) and (parent := find(where, name.id)):
            home, node, place = parent
            if isinstance(node, ast.ClassDef):
                found |= members(home, node, place)
    for number, stated in enumerate(kind.body):
        if isinstance(stated, Definition) and not _is_overload(stated):
            found[_defined(stated)] = Member(module, stated, _remark(kind.body, number))
    return found


def _is_overload(node: Definition) -> bool:
    return isinstance(node, Function) and "overload" in _decorators(node)


def _decorators(function: Function) -> set[str]:
    names = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return {ast.unparse(one).rpartition(".")[2] for one in names}


def _is_public(name: str) -> bool:
    return not name.startswith(("_", "test_")) or name == "__call__"


def _class(module: SourceModule, kind: ast.ClassDef, where: str) -> Iterator[str]:
    every = members(module, kind, where)
    made = every.get("__init__")
    constructor = made.node if made is not None else None
    bases = [_source(module, base) for base in kind.bases]
    of_fields = bool(OF_FIELDS & set(bases)) or "dataclass" in _decorated(kind)
    if kind.name in GIVEN:
        yield f"```pyi\nclass {kind.name}\n```"
        constructor = None
    elif made is not None and isinstance(constructor, Function):
        yield signature(f"class {kind.name}", parameters(made.module, constructor, bound=True))
    elif of_fields:
        by_name = "kw_only=True" in _decorated(kind) or "kw_only" in {k.arg for k in kind.keywords}
        yield signature(f"class {kind.name}", [*(["*"] if by_name else []), *_fields(every)])
    else:
        parents = f"({', '.join(bases)})" if bases else ""
        yield f"```pyi\nclass {kind.name}{parents}\n```"
    yield paragraphs(kind)
    if isinstance(constructor, Function):
        yield paragraphs(constructor)
    public = {name: one for name, one in every.items() if _is_public(name)}
    for hidden in INTERNAL.get(kind.name, ()):
        del public[hidden]
    if kind.name.endswith("Store") and kind.name not in PROTOCOLS:
        protocol = PROTOCOLS["aclose" in every and "close" not in every]
        for name in _members_of(protocol) & public.keys():
            del public[name]
        yield f"It has the methods of [`{protocol}`](stores.md#{protocol.lower()})."
    rows = [row for name, one in public.items() if (row := _attribute(name, one))]
    if of_fields:  # the signature has those that are not described
        rows = [row for row in rows if not row.endswith("|  |")]
    if rows:
        yield "\n".join(["| attribute | type | |", "|---|---|---|", *rows])
    for name, one in public.items():
        if isinstance(one.node, Function) and not _is_property(one):
            kept = "staticmethod" not in _decorators(one.node)
            yield f"#### `{kind.name}.{name}`" if name != "__call__" else f"#### `{kind.name}(...)`"
            yield _function(one.module, one.node, bound=kept)
            yield paragraphs(one.node)


def _members_of(protocol: str) -> set[str]:
    found = find("oncekey.stores", protocol)
    assert found is not None  # noqa: S101  # the pages describe it
    module, node, where = found
    assert isinstance(node, ast.ClassDef)  # noqa: S101  # as above
    return set(members(module, node, where))


def _decorated(kind: ast.ClassDef) -> str:
    return " ".join(ast.unparse(one) for one in kind.decorator_list)


def _fields(fields: dict[str, Member]) -> Iterator[str]:
    for name, one in fields.items():
        if isinstance(one.node, ast.AnnAssign) and _is_public(name):
            text = f"{name}: {_source(one.module, one.node.annotation)}"
            if one.node.value is not None:
                text += f" = {_default(one.module, one.node.value)}"
            yield text


def _is_property(one: Member) -> bool:
    if not isinstance(one.node, Function):
        return False
    return bool({"property", "cached_property"} & _decorators(one.node))


def _attribute(name: str, one: Member) -> str:
    """Return the row of a field or a property."""
    kind, text = "", one.remark
    if _is_property(one):
        assert isinstance(one.node, Function)  # noqa: S101  # see _is_property
        kind = _source(one.module, one.node.returns) if one.node.returns else ""
        text = paragraphs(one.node)
    elif isinstance(one.node, ast.AnnAssign):
        kind = _source(one.module, one.node.annotation)
    elif not isinstance(one.node, ast.Assign):
        return ""
    elif isinstance(one.node.value, ast.Constant):
        text = text or f"always `{one.node.value.value!r}`"
    kind = f"`{kind}`".replace("|", r"\|") if kind else ""
    return f"| `{name}` | {kind} | {' '.join(text.split())} |"


# Pages


def _described(module: str, name: str) -> Iterator[str]:
    yield f"### `{name}`"
    found = find(module, name)
    if found is None:
        raise ValueError(f"{module}.{name} is not defined anywhere in the package")
    home, node, where = found
    match node:
        case ast.ClassDef():
            yield from _class(home, node, where)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield _function(home, node)
            yield paragraphs(node)
        case ast.AnnAssign() | ast.Assign():
            yield _constant(home, name, node)
            body = home.tree.body
            yield _remark(body, body.index(node)) if node in body else ""


def _constant(module: SourceModule, name: str, node: ast.AnnAssign | ast.Assign) -> str:
    kind = f": {_source(module, node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
    value = "" if node.value is None else f" = {ast.unparse(node.value)}".replace("'", '"')
    line = f"{name}{kind}{value}"
    if kind == ": Final" and isinstance(node.value, ast.Call):
        line = f"{name}: {_source(module, node.value.func)}"
    elif len(line) > WIDTH:
        line = re.sub(r"([\[,]) ?", r"\1\n    ", line).removesuffix("]") + ",\n]"
    return f"```pyi\n{line}\n```"


def page(told: ApiPage) -> str:
    """Return the text of a page."""
    parts = [
        f"# {told.title}",
        "<!-- Written by `python -m tools.api_reference`; the text is in the docstrings. -->",
    ]
    for name in told.modules:
        module = module_of(name)
        if module is None:
            raise ValueError(f"there is no module {name}")
        parts += [f"## `{name}`", paragraphs(module.tree)]
        for one in sorted(LISTED.get(name, module.names), key=_order):
            parts += _described(name, one)
    return "\n\n".join(part for part in parts if part) + "\n"


def _order(name: str) -> tuple[bool, bool, str]:
    """Sort what everything starts with first, and errors last."""
    return name.endswith("Error") and name != "OnError", name != "Once", name.lower()


def pages() -> dict[Path, str]:
    """Return every page with its text."""
    return {API / f"{told.name}.md": page(told) for told in PAGES}


def main(words: list[str]) -> int:
    """Write the pages, or tell which of them are not current."""
    wanted = pages()
    stale = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in words:
        if stale:
            sys.stderr.write(f"API pages are not current, run `make generate`: {names}\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], "utf-8")
    if stale:
        sys.stdout.write(f"Written: {names}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
