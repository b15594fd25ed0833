"""The hook of the packed client in a page of React, in a real Chromium."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.outside.environment import ROOT
from tests.patience import PATIENCE, until
from tests.system.browser.scripted import (
    Answer,
    Scripted,
    event,
    event_of,
    events,
    places,
    refused,
    resync,
    resync_of,
    tagged,
)

pytestmark = pytest.mark.xdist_group("browser")

HERE = Path(__file__).parent
ORDERS = ROOT / "build" / "orders"


@pytest.fixture(scope="session")
def script():
    """The page, built with the packed client as an application would."""
    words = ["make", "orders"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    shutil.copy(HERE / "hook_page.jsx", ORDERS)
    words = ["hook_page.jsx", "--bundle", "--jsx=automatic", "--outfile=hook_page.js"]
    command = [ORDERS / "node_modules" / ".bin" / "esbuild", *words]
    subprocess.run(command, cwd=ORDERS, check=True, capture_output=True)
    return ORDERS / "hook_page.js"


@pytest.fixture(autouse=True)  # first, so that it outlives the page
def server():
    made = Scripted().start()
    yield made
    made.stop()


@pytest.fixture
def show(page, server, script):
    """A page of React whose component is shown with these properties."""

    def show(*answers, **properties):
        server.answers = list(answers) or server.answers
        page.goto(server.url)
        page.add_script_tag(path=script)
        page.wait_for_function("typeof window.want === 'function'")
        page.evaluate("(wanted) => want(wanted)", properties)
        return page

    return show


OFFSETS = "shown.events.map((event) => event.offset)"


@pytest.mark.row("E5")
def test_a_component_shows_each_event_once_over_cuts(show, server, complaints):
    """React starts each effect twice here, but asks only once."""

    class Log(list[Answer]):
        """The log after the client's place, cut off in the middle of an event."""

        def pop(self, _):
            at = int(server.asked[-1].get("after", "ab.0.-").split(".")[1])
            return Answer((events(at + 1, at + 2), event(at + 3)[:-5]), end="end")

    server.answers = Log([Answer()] * 2)
    page = show(url="/job")
    page.wait_for_function("window.shown.events.length >= 8")
    offsets = page.evaluate(OFFSETS)
    assert offsets == list(range(1, len(offsets) + 1))
    assert page.evaluate("shown.resync") is None
    page.evaluate("want(null)")
    complaints[:] = [said for said in complaints if "Failed to load resource" not in said]


def test_a_resync_drops_what_is_shown(show):
    page = show(
        Answer((events(1, 3), resync("trimmed", "cd.4.-") + event(5, epoch="cd"))),
        url="/job",
    )
    page.wait_for_function("window.shown.resync")
    page.wait_for_function("window.shown.events.length === 1")
    assert page.evaluate(OFFSETS) == [5]
    assert page.evaluate("shown.resync") == "trimmed"


def test_another_address_starts_anew_and_the_old_connection_ends(show, server):
    page = show(Answer((events(1, 3),)), Answer((event(1),)), url="/job")
    page.wait_for_function("window.shown.events.length === 3")
    server.left.clear()
    page.evaluate("want({ url: '/other' })")
    page.wait_for_function("window.shown.events.length === 1")
    assert server.left.wait(PATIENCE)
    asked = len(server.asked)
    server.left.clear()
    page.evaluate("want(null)")
    assert server.left.wait(PATIENCE), "a component that is not shown follows nothing"
    assert len(server.asked) == asked


@pytest.mark.row("E5")
def test_several_jobs_are_shown_from_one_connection(show, server, complaints):
    before = f"{tagged('b')}.ee.0.-~{places({'a': 2}, 'a')}"
    first = event_of("a", {"a": 1}) + event_of("b", {"b": 1, "a": 1})
    new = f"{tagged('b')}.ee.1.0c~{places({'a': 2}, 'a')}"
    page = show(
        Answer((first, event_of("a", {"a": 2, "b": 1}), refused("c", "forbidden")), end="end"),
        Answer(
            (
                resync_of("b", "epoch", before)
                + b'data: {"job_id": "b", "seq": 1}\nid: %s\n\n' % new.encode(),
            )
        ),
        url="/events/",
        jobs=["a", "b", "c"],
    )
    page.wait_for_function("window.shown.resync && window.shown.events.length === 3")
    shown = page.evaluate("shown.events.map((event) => [event.job_id, event.offset])")
    assert sorted(shown) == [["a", 1], ["a", 2], ["b", 1]]
    assert page.evaluate("shown.refused") == {"c": "forbidden"}
    assert server.asked[-1] == {"after": places({"a": 2, "b": 1}, "a")}
    asked = len(server.asked)
    page.evaluate("want({ url: '/events/', jobs: ['a', 'b', 'c'] })")  # the same list, made anew
    page.evaluate("want({ url: '/events/', jobs: [] })")
    page.wait_for_function("window.shown.events.length === 0")
    until(server.left.is_set)
    assert len(server.asked) == asked
    complaints[:] = [said for said in complaints if "Failed to load resource" not in said]
