"""Every Python snippet of the README and the docs runs and does what its comments say."""

import ast
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import _state as celery_state  # type: ignore[import-untyped]  # celery has no types
from django.conf import empty  # type: ignore[import-untyped]  # Django brings no types
from django.conf import settings as django_settings
from django.urls import clear_url_caches  # type: ignore[import-untyped]  # as above

from oncekey import Once
from oncekey.stores import SQLiteStore
from tests.docs.snippets import BrokenPromiseError, blocks, run
from tests.servers.nats_fixtures import nats_server
from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "nats_server", "postgres", "postgres_url", "redis_server"]

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "docs", ROOT / "examples", ROOT / "npm")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
PAGES = sorted(page for page in PAGES if not {"_build", "node_modules"} & set(page.parts))
WITH_CODE = {"README.md", "tutorial.md", "ways-in.md", "reference.md", "guarantees.md"}


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The name of an empty module in an empty folder; what it opens is closed afterwards."""
    name = "snippets_of_a_page"
    made = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.chdir(tmp_path)
    for variable in [one for one in os.environ if one.startswith("ONCEKEY_")]:
        monkeypatch.delenv(variable)
    monkeypatch.delenv("REDIS_URL", raising=False)
    configured, django_settings._wrapped = django_settings._wrapped, empty  # a page may do it anew
    clear_url_caches()  # those of another page
    shared = set(celery_state._on_app_finalizers)  # the tasks that each new app of Celery gets
    yield name
    celery_state._on_app_finalizers &= shared
    for value in list(vars(made).values()):
        if isinstance(value, (Once, SQLiteStore)):
            value.close()
    django_settings._wrapped = configured


SERVERS = {
    "jobs-procrastinate.md": {"postgresql://shop@localhost/shop": "postgres_url"},
    "jobs-rq.md": {"redis://localhost:6379/0": "redis_url"},
    "messages-brokers.md": {
        "nats://localhost:4222": "nats_url",
        "redis://localhost:6379/0": "redis_url",
    },
    "messages-sqlalchemy.md": {"postgresql://shop@localhost/shop": "postgres_url"},
}
"""The pages that use servers: the addresses on them, and the fixtures that give ours."""


@pytest.fixture
def redis_url(empty_redis):
    return empty_redis.url


@pytest.fixture
def nats_url(nats_server):
    return nats_server.url


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_does_what_it_says(page, module, request):
    text = page.read_text("utf-8")
    for address, fixture in SERVERS.get(page.name, {}).items():
        assert address in text
        text = text.replace(address, request.getfixturevalue(fixture))
    run(page, text, module)


def test_the_pages_that_teach_have_snippets():
    found = {
        page.name
        for page in PAGES
        if any(block.language == "python" for block in blocks(page.read_text("utf-8")))
    }
    assert found >= WITH_CODE


NOT_RUN_HERE = {
    "http-frameworks.md": "run by tests/system/http, with frameworks whose pins disagree with ours",
    "http-django.md": "Django REST framework, tried in tests/system/http",
    "http-openapi.md": "drf-spectacular and flask-smorest, tried in tests/system/http",
    "jobs-arq.md": "run by tests/system/queues, with a redis-py that is older than ours",
    "jobs-saq.md": "the same",
    "messages-brokers.md": "Kafka, tried in tests/system/kafka; SQS, which nobody has tried",
    "messages-sqlalchemy.md": "env.py of Alembic, run by tests/messages/test_sqlalchemy.py",
    "stores-django.md": "the files of a project, run by tests/system/frameworks",
    "migrating-": "the code of the other package, before the move",
}
"""Python in blocks of plain text, and why."""


def is_python(code: str) -> bool:
    """Tell whether a block is a program, and not a sentence that happens to parse."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.Call)
    return any(isinstance(node, kinds) for node in ast.walk(tree))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_python_is_dressed_as_something_else(page):
    if not page.name.startswith(tuple(NOT_RUN_HERE)):
        text = page.read_text("utf-8")
        hidden = [block for block in blocks(text) if block.language == "text"]
        assert [block.line for block in hidden if is_python(block.code)] == []
        assert ":::" not in text  # a fence that the runner does not know


# The runner itself


def page_of(*code: str, language: str = "python") -> str:
    return "\n".join(["Text.", "", f"```{language}", *code, "```", ""])


@pytest.mark.parametrize(
    "code",
    ["x = 1", "1 + 1  # -> 2", "[][0]  # raises IndexError", "[][0]  # raises LookupError"],
)
def test_promises_that_are_kept_pass(code, module):
    run(Path("page.md"), page_of(code), module)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 + 1  # -> 3", "page.md:4: is 2, not 3"),
        ("1 + 1  # raises ValueError", "page.md:4: does not raise ValueError"),
        ("[][0]  # raises ValueError", "page.md:4: raises IndexError, not ValueError"),
        ("x = 1  # -> 1", "page.md:4: only an expression has a value to promise"),
    ],
)
def test_a_broken_promise_is_named_with_its_line(code, says, module):
    with pytest.raises(BrokenPromiseError, match=says):
        run(Path("page.md"), page_of(code), module)


def test_blocks_of_a_page_share_a_module(module):
    run(Path("page.md"), page_of("x = 1") + page_of("y = x + 1", "y  # -> 2"), module)


def test_an_error_nobody_announced_comes_through(module):
    with pytest.raises(ZeroDivisionError):
        run(Path("page.md"), page_of("1 / 0"), module)


@pytest.mark.parametrize("language", ["", "py", "pycon", "{code-block} python"])
def test_no_block_gets_past_the_runner_under_another_name(language, module):
    with pytest.raises(BrokenPromiseError, match=r"page\.md:"):
        run(Path("page.md"), page_of("1 / 0", language=language), module)


def test_a_block_that_is_never_closed_is_noticed(module):
    with pytest.raises(BrokenPromiseError, match="no language"):
        run(Path("page.md"), "```python\nx = 1\n", module)
