"""One server for each framework, and a site on it for each test.

A framework is a module in `shells/` with

    SERVER = "asgi" or "wsgi"
    def make(site, **settings) -> app

which gives every path of `suite.service.ROUTES` for every method to `suite.service.handle`, behind
the middleware with `once=site.once` and the settings. Its own authentication knows the users of
`suite.site.TOKENS` before the middleware runs; where `site.claims`, each handler claims first, as
the framework's documentation says, with `scope=` the user. A module that is there is tested.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, filterfalse
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.http.suite")

from tests.heavy import HEAVY  # noqa: E402 - see above
from tests.http.suite.servers import SERVING, Address, Apps  # noqa: E402 - see above
from tests.http.suite.site import Site  # noqa: E402 - see above
from tests.leases import unhurried  # noqa: E402 - see above
from tests.patience import PATIENCE  # noqa: E402 - see above

SHELLS = sorted(path.stem for path in (Path(__file__).parent / "shells").glob("[a-z]*.py"))
NUMBERS = count(1)


HELD_FOR = [f"oncekey.http.{module}._HELD_FOR" for module in ("asgi", "django", "wsgi")]


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store did not answer is asked for again, and what soon ends is held until then."""
    unhurried(monkeypatch)
    for name in HELD_FOR:
        monkeypatch.setattr(name, PATIENCE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the long run what another framework shows: FastAPI and Flask behind the middleware.

    It is the one of Starlette and of WSGI. What claims in a handler is each framework's own; for
    aiohttp `test_aiohttp.py` tries it. What a profile says is the same in all of them.
    """
    if not HEAVY:
        config.hook.pytest_deselected(items=list(filter(_is_shown_by_another, items)))
        items[:] = filterfalse(_is_shown_by_another, items)

    config.hook.pytest_deselected(items=list(filter(_is_sent_by_itself, items)))
    items[:] = filterfalse(_is_sent_by_itself, items)


def _is_sent_by_itself(item: pytest.Item) -> bool:
    """A handler of aiohttp sends its stream by itself, and nobody can hold that back."""
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    return chosen.get("shell") == "aiohttp" and item.originalname in {  # type: ignore[attr-defined]  # functions have it
        "test_one_that_ends_soon_is_kept_and_replayed",
        "test_one_that_fails_half_way_frees_the_key",
        "test_one_that_uses_its_buffer_again_is_sent_and_kept_as_it_was",
        "test_a_stream_of_it_is_not_sent_either",
    }


def _is_shown_by_another(item: pytest.Item) -> bool:
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    shown = ("fastapi", "first"), ("flask", "first"), ("aiohttp", "handler")
    if item.path.name == "test_behaviour.py" and "Commerce" in item.nodeid:
        return bool(chosen["shell"] != "starlette")
    return (chosen.get("shell"), chosen.get("site")) in shown


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], tuple[Apps, Address]]]:
    """Gives the server of a kind, started when the first asks for it."""
    with ExitStack() as stack:
        started: dict[str, tuple[Apps, Address]] = {}

        def server(kind: str) -> tuple[Apps, Address]:
            if kind not in started:
                started[kind] = stack.enter_context(SERVING[kind]())
            return started[kind]

        yield server


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> Any:
    """The module of a framework."""
    return importlib.import_module(f"tests.http.shells.{request.param}")


@pytest.fixture
def serve(shell: Any, servers: Any) -> Iterator[Callable[..., Site]]:
    """Makes sites of this framework: `serve(profile="stripe", scope=None)`."""
    apps, address = servers(shell.SERVER)
    sites: list[Site] = []

    def make(*, beside: Site | None = None, claims: bool | None = None, **settings: Any) -> Site:
        site = Site(str(next(NUMBERS)), address, settings, beside)
        site.claims = site.claims if claims is None else claims
        sites.append(site)
        apps[site.number] = shell.make(site, **settings)
        return site

    yield make
    for site in sites:
        site.close()
        del apps[site.number]


@pytest.fixture(params=["first", "handler"])
def site(serve: Callable[..., Site], request: pytest.FixtureRequest) -> Site:
    """A site under the default profile, whose keys belong to everybody; whoever claims them."""
    return serve(scope=None, claim=request.param)
