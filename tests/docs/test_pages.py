"""The pages name everything that is public, and the generated ones are up to date."""

import dataclasses
import inspect
import re
import runpy
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry

import oncekey
import oncekey.errors
import oncekey.events
import oncekey.events.errors
import oncekey.stores
import oncekey.testing
from oncekey import Once, OncekeyError, Policy
from oncekey.events.observers import Name as Happened
from oncekey.events.prometheus import PrometheusObserver
from oncekey.events.settings import BusSettings as EventSettings
from oncekey.observe import Name
from oncekey.policy import FUNCTION, terms
from tests.docs.snippets import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = (DOCS / "reference.md").read_text("utf-8")

NAMES = [
    *oncekey.__all__,
    *oncekey.events.__all__,
    *oncekey.stores.__all__,
    *oncekey.testing.__all__,
]
ERRORS = [
    error
    for error in (vars(oncekey.errors) | vars(oncekey.events.errors)).values()
    if isinstance(error, type)
    and issubclass(error, OncekeyError)
    and not error.__name__.startswith("_")
]
FIELDS = [field.name for field in dataclasses.fields(Policy) if field.init]
OF_SURFACES = {"having", "use"}
"""Methods by which HTTP, jobs and messages use a `Once`."""
METHODS = [
    name
    for name, value in vars(Once).items()
    if inspect.isfunction(value) and not name.startswith("_") and name not in OF_SURFACES
]


@pytest.fixture
def maker() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "make_states.py"))


def test_the_page_of_states_is_what_the_table_says(maker):
    assert (DOCS / "states.md").read_text("utf-8") == maker["page"](), (
        "python docs/make_states.py writes it again"
    )


def test_the_diagram_of_states_is_what_the_table_says(maker):
    assert (DOCS / "images" / "states.svg").read_text("utf-8") == maker["diagram"](), (
        "python docs/make_states.py draws it again"
    )


def test_an_arrow_that_is_not_drawn_is_noticed(maker):
    arrows = maker["ARROWS"]
    del arrows["held", "released"]
    with pytest.raises(ValueError, match=r"held.*released"):
        maker["diagram"]()


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_names_what_is_public(name):
    assert f"`{name}" in REFERENCE


@pytest.mark.parametrize("name", METHODS)
def test_the_reference_names_every_method_of_once(name):
    assert f"`{name}" in REFERENCE or f".{name}(" in REFERENCE


@pytest.mark.parametrize("error", ERRORS)
def test_the_reference_names_every_error_with_its_status_hint(error):
    assert re.search(
        rf"^\| `{error.__name__}` \|.*\| {error.status_hint} \|$", REFERENCE, re.MULTILINE
    )


@pytest.mark.parametrize("field", FIELDS)
def test_every_setting_is_in_the_table(field):
    assert re.search(rf"^\| `{field}` \| .+ \| .+ \|$", REFERENCE, re.MULTILINE)


def test_the_table_gives_the_defaults_that_there_are():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \| [^|]+ \|$", REFERENCE, re.MULTILINE))
    for field in ("ttl", "lease", "wait", "retry_after", "max_result"):
        said = rows[field].replace("\N{NO-BREAK SPACE}", "").replace(" ", "")
        made = dataclasses.replace(Policy(), **{field: said})
        assert _comparable(made, field) == _comparable(FUNCTION, field)
    assert rows["on_error"] == "`release`"
    assert rows["on_crash"] == "`retry`"
    assert rows["fail_mode"] == "`closed`"


def _comparable(policy: Policy, field: str) -> object:
    return getattr(terms(policy.over(FUNCTION)), field)


@pytest.mark.parametrize("event", get_args(Name))
def test_the_reference_names_every_event(event):
    assert f"`{event}`" in REFERENCE


@pytest.mark.parametrize("field", dataclasses.fields(EventSettings), ids=lambda field: field.name)
def test_the_reference_names_every_setting_of_events(field):
    if field.name not in ("domain", "stages"):
        assert f"| `{field.name}` |" in REFERENCE


def test_the_page_of_events_names_every_happening_and_metric():
    text = (DOCS / "events.md").read_text("utf-8")
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    metrics = {re.sub(r"_created$", "_total", metric) for metric in registry._names_to_collectors}
    shown = {name for name in metrics if name.endswith(("_total", "_followers"))}
    assert not [name for name in (*get_args(Happened), *shown) if f"`{name}`" not in text]


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts]


def test_every_page_stands_in_one_list_of_pages():
    """From the front page every page is reached, by one way."""
    listed = Counter(
        (page.parent / f"{name}.md").resolve()
        for page in PAGES
        for block in blocks(page.read_text("utf-8"))
        if block.language == "{toctree}"
        for name in block.code.splitlines()
        if name and not name.startswith(":") and name != "0*"
    )
    listed.update((DOCS / "decisions").glob("0*.md"))
    assert [page for page, times in listed.items() if times > 1] == []
    assert listed.keys() == {*PAGES} - {DOCS / "index.md"}


def test_the_front_page_names_no_page_outside_its_lists():
    assert "](" not in (DOCS / "index.md").read_text("utf-8")


def test_every_extra_is_on_the_page_about_installing():
    told = (DOCS / "install.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].keys()
    assert [extra for extra in extras if f"`{extra}`" not in told] == []
    for page in [ROOT / "README.md", *PAGES]:
        for named in re.findall(r"oncekey\[([\w,]+)\]", page.read_text("utf-8")):
            assert set(named.split(",")) <= extras, page


OUTSIDE = [ROOT / "README.md", ROOT / "examples" / "README.md"]


@pytest.mark.parametrize(
    "page", [*OUTSIDE, *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_inside_the_project_lead_somewhere(page):
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (page.parent / target).exists(), target


FEW = """
from hypothesis import settings
settings.register_profile("few", max_examples=5, deadline=None)
settings.load_profile("few")
"""


def test_the_store_in_the_reference_passes_the_suite_that_it_names(pytester):
    code = [block.code for block in blocks(REFERENCE) if "DictStore" in block.code]
    pytester.makepyfile("\n".join(["from oncekey import Once", *code]))
    pytester.makeconftest(FEW)
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    assert result.ret == 0
    assert result.parseoutcomes().keys() == {"passed"}
